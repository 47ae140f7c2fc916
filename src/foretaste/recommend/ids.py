"""Ids as callers give them, and how errors and reasons name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.formatting import shown
from foretaste._util.settings import checked, wrong
from foretaste.errors import UnknownIdError

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable

Id = int | str
Unknown = Literal["error", "skip", "popular"]
"""What becomes of users that a run does not know."""

_WHAT_BECOMES = {"skip": " and left out", "popular": ", answered in popularity order"}

_NUM_NAMED = 5
_NUM_EXAMPLES = 3


def as_ids(name: str, ids: Iterable[Id]) -> list[Id]:
    """The ids given as any iterable: list, set, NumPy or Arrow array, pandas column."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise wrong(name, ids, f"a list of ids; write [{shown(ids)}]")
    for to_list in ("tolist", "to_pylist"):
        if hasattr(ids, to_list):
            return list(getattr(ids, to_list)())
    return list(ids)


def named(ids: Sequence[Id]) -> str:
    """The first few ids and how many more there are, for a message."""
    text = ", ".join(repr(value) for value in ids[:_NUM_NAMED])
    more = len(ids) - _NUM_NAMED
    return f"{text} and {more} more" if more > 0 else text


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedUsers:
    """The users to answer, in the order asked."""

    users: IdTable
    """All users of the run."""

    user_index: NDArray[np.int64]
    """The row of each; ``len(users)`` where the run does not know the user."""

    unknown: Sequence[Id] = ()
    """Ids of those the run does not know, in order."""

    notes: tuple[str, ...] = ()
    """What callers should know of the ids they gave."""

    @classmethod
    def of(cls, users: IdTable, user_ids: Iterable[Id], unknown: Unknown) -> AskedUsers:
        """Look users up; UnknownIdError names unknown ones where ``unknown`` is ``error``."""
        checked("unknown", unknown, Unknown)
        ids = as_ids("user_ids", user_ids)
        if unknown == "error":
            return cls(users=users, user_index=lookup_all(users, ids))
        row = users.lookup(ids)
        missing = users.as_kept(compress(ids, row < 0))
        notes = (_unknown(users, missing, ids, _WHAT_BECOMES[unknown]),) if missing else ()
        if unknown == "skip":
            return cls(users=users, user_index=row[row >= 0], notes=notes)
        user_index = np.where(row < 0, len(users), row)
        return cls(users=users, user_index=user_index, unknown=missing, notes=notes)

    def ids(self) -> list[Id]:
        """One id per user."""
        is_known = self.user_index < len(self.users)
        known, unknown = iter(self.users.ids(self.user_index[is_known])), iter(self.unknown)
        return [next(known if flag else unknown) for flag in is_known]

    def column(self) -> pa.Array | pa.ChunkedArray:
        """The same as Arrow has them."""
        if self.unknown:
            return id_array(self.ids())
        return self.users.table.column("id").take(self.user_index)


def id_array(ids: Sequence[Id]) -> pa.Array:
    """Ids as a column: integers, or text as soon as one of them is."""
    is_text = any(isinstance(value, str) for value in ids)
    return pa.array([str(value) for value in ids] if is_text else ids)


def lookup_all(table: IdTable, ids: Sequence[Id]) -> NDArray[np.int64]:
    """The row of each id; UnknownIdError names those that the run has never seen."""
    index = table.lookup(ids)
    if (index >= 0).all():
        return index
    unknown = list(compress(ids, index < 0))
    raise UnknownIdError(_unknown(table, unknown, ids), unknown)


def _unknown(table: IdTable, unknown: Sequence[Id], asked: Sequence[Id], becomes: str = "") -> str:
    return (
        f"{len(unknown)} of {len(asked)} {table.kind} ids are unknown to this run{becomes}: "
        f"{named(unknown)}; {examples(table)}"
    )


def examples(table: IdTable) -> str:
    """What the ids of a run look like: ``the run's item ids are integers such as 1, 2, 3``."""
    kind = "integers" if table.is_integer else "text"
    first = table.ids(np.arange(min(_NUM_EXAMPLES, len(table))))
    return f"the run's {table.kind} ids are {kind} such as {named(first)}"
