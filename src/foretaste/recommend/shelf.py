"""What may be recommended: the catalogue, or what callers leave of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretaste.recommend.ids import Id, as_ids, examples, named

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable

_FEW = 8
"""Items are scored one by one when they are at most one in so many of the catalogue."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shelf:
    """The items that a list may hold."""

    is_allowed: NDArray[np.bool_]
    """Whether each item of the catalogue may be recommended, [num_items]."""

    contents: str
    """What they are, for a message: ``item{s} in the catalogue``."""

    notes: tuple[str, ...]
    """What callers should know of the ids they gave."""

    @cached_property
    def size(self) -> int:
        """Number of items that may be recommended."""
        return int(np.count_nonzero(self.is_allowed))

    @property
    def is_small(self) -> bool:
        """Whether scoring its items one by one beats scoring the catalogue."""
        return self.size * _FEW <= len(self.is_allowed)


def make_shelf(
    items: IdTable, num_items: int, *, candidates: Iterable[Id] | None, exclude: Iterable[Id]
) -> Shelf:
    """The catalogue (the first ``num_items`` of ``items``), only ``candidates``, less ``exclude``.

    Ids that are not in the catalogue are left out, and named in the notes: a list of what is in
    stock naturally holds items younger than the model.
    """
    is_allowed = np.ones(num_items, dtype=bool)
    contents = "item{s} in the catalogue"
    notes: list[str] = []
    if candidates is not None:
        index, notes = _in_catalogue(items, num_items, "candidates", candidates)
        is_allowed[:] = False
        is_allowed[index] = True
        contents = "candidate{s} in the catalogue"
    index, more_notes = _in_catalogue(items, num_items, "exclude", exclude)
    if len(index):
        is_allowed[index] = False
        contents += " without the excluded"
    return Shelf(is_allowed=is_allowed, contents=contents, notes=(*notes, *more_notes))


def reason_for_fewer(num_items: int, k: int, size: int, contents: str) -> str | None:
    """Why a list drawn from ``size`` items has ``num_items`` and not ``k``; None if it has k."""
    if num_items >= k:
        return None
    reason = f"only {num_items} of {k}: {size} " + contents.format(s="" if size == 1 else "s")
    num_seen = size - num_items
    return f"{reason}, {num_seen} of them in the history" if num_seen else reason


def _in_catalogue(
    items: IdTable, num_items: int, name: str, given: Iterable[Id]
) -> tuple[NDArray[np.int64], list[str]]:
    """Indexes of the given ids that are in the catalogue, and a note on the others."""
    ids = as_ids(name, given)
    index = items.lookup(ids)
    in_catalogue = (index >= 0) & (index < num_items)
    missing = list(compress(ids, ~in_catalogue))
    notes = []
    if missing:
        note = f"{len(missing)} of {len(ids)} ids in {name} ignored, never seen in training: "
        hint = f"; {examples(items)}" if len(missing) == len(ids) else ""
        notes.append(f"{note}{named(missing)}{hint}")
    return index[in_catalogue], notes
