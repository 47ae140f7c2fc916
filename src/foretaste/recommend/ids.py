"""Ids as callers give them, and how errors and reasons name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretaste.errors import SettingError, UnknownIdError

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable

Id = int | str

_NUM_NAMED = 5
_NUM_EXAMPLES = 3


def as_ids(name: str, ids: Iterable[Id]) -> list[Id]:
    """The ids given as any iterable: list, set, NumPy or Arrow array, pandas column."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise SettingError(f"{name} must be a list of ids, got {ids!r}; write [{ids!r}]")
    for to_list in ("tolist", "to_pylist"):
        if hasattr(ids, to_list):
            return list(getattr(ids, to_list)())
    return list(ids)


def check_k(k: int) -> int:
    """``k`` itself; SettingError unless it is a whole number from 1."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise SettingError(f"k must be a whole number from 1, got {k!r}")
    return int(k)


def named(ids: Sequence[Id]) -> str:
    """The first few ids and how many more there are, for a message."""
    text = ", ".join(repr(value) for value in ids[:_NUM_NAMED])
    more = len(ids) - _NUM_NAMED
    return f"{text} and {more} more" if more > 0 else text


def lookup_all(table: IdTable, ids: Sequence[Id]) -> NDArray[np.int64]:
    """The row of each id; UnknownIdError names those that the run has never seen."""
    index = table.lookup(ids)
    if (index >= 0).all():
        return index
    unknown = list(compress(ids, index < 0))
    raise UnknownIdError(
        f"{len(unknown)} of {len(ids)} {table.kind} ids are unknown to this run: {named(unknown)}; "
        f"{examples(table)}"
    )


def examples(table: IdTable) -> str:
    """What the ids of a run look like: ``the run's item ids are integers such as 1, 2, 3``."""
    kind = "integers" if table.is_integer else "text"
    first = table.ids(np.arange(min(_NUM_EXAMPLES, len(table))))
    return f"the run's {table.kind} ids are {kind} such as {named(first)}"
