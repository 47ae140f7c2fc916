"""Item filter: the items that may be recommended, the catalogue or part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretaste.data.ids import Id
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import examples, first_few

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.max_per import MaxPer

_FEW = 8
"""Allowed items are scored one by one if at most one item in 8 of the catalogue is allowed."""


class Condition(NamedTuple):
    """A condition on items, in words, with a mask of the items that meet it."""

    words: str
    is_met: NDArray[np.bool_]
    """[num_items]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemFilter:
    """The items that a list may hold."""

    is_allowed: NDArray[np.bool_]
    """True for items of the catalogue that may be recommended, [num_items]."""

    excluded: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Indexes of the excluded items of the catalogue."""

    contents: str = "item{s} in the catalogue"
    """Description of the allowed items, for a message."""

    notes: tuple[str, ...] = ()
    """Remarks on the given ids."""

    max_per: MaxPer | None = None
    """Limits on items of a list with the same value in a column."""

    @classmethod
    def of(
        cls,
        items: IdTable,
        num_items: int,
        request: ListRequest,
        condition: Condition | None = None,
        max_per: MaxPer | None = None,
    ) -> ItemFilter:
        """Return the catalogue restricted to a request's candidates, ``condition`` and exclusions.

        The catalogue is the first ``num_items`` of ``items``. Ids that are not in the catalogue are
        ignored, with a note.
        """
        # This is no error: a list of items in stock naturally has items that are newer than the
        # model.
        is_allowed = np.ones(num_items, dtype=bool)
        contents = cls.contents
        notes: Sequence[str] = []
        if request.candidates is not None:
            index, notes = _in_catalogue(items, num_items, "candidates", request.candidates)
            is_allowed[:] = False
            is_allowed[index] = True
            contents = "candidate{s} in the catalogue"
        if condition is not None:
            is_allowed &= condition.is_met
            # The text is formatted later, and a condition may hold braces.
            contents += f" meeting {condition.words}".replace("{", "{{").replace("}", "}}")
        index, more_notes = _in_catalogue(items, num_items, "exclude", request.exclude)
        if len(index):
            is_allowed[index] = False
            contents += " without the excluded"
        notes = (*notes, *more_notes)
        return cls(
            is_allowed=is_allowed, excluded=index, contents=contents, notes=notes, max_per=max_per
        )

    @cached_property
    def size(self) -> int:
        """Number of items that may be recommended."""
        return int(np.count_nonzero(self.is_allowed))

    @property
    def is_small(self) -> bool:
        """True if scoring the allowed items one by one takes less than scoring the catalogue."""
        return self.size * _FEW <= len(self.is_allowed)


def _in_catalogue(
    items: IdTable, num_items: int, name: str, ids: Sequence[Id]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return indexes of the given ids that are in the catalogue, and a note on the others."""
    if not ids:
        return np.zeros(0, dtype=np.int64), []
    index = items.rows_of(ids)
    in_catalogue = (index >= 0) & (index < num_items)
    missing = list(compress(ids, ~in_catalogue))
    notes = []
    if missing:
        note = f"{len(missing)} of {len(ids)} ids in {name} ignored, never seen in training: "
        hint = f"; {examples(items)}" if len(missing) == len(ids) else ""
        notes.append(f"{note}{first_few(missing)}{hint}")
    return index[in_catalogue], notes
