"""Histories of many users as one CSR pair of NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Indexes = NDArray[np.integer]
"""Dense indexes of users or items, of any integer type."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Histories:
    """The items of ``num_users`` users, one row per user.

    Row ``u`` holds ``item_index[offsets[u]:offsets[u + 1]]``, ascending and without repeats.
    ``position`` tells the order in which the user took these items.
    """

    offsets: NDArray[np.int64]
    """The start of each row, and the end of the last one: [num_users + 1]."""

    item_index: NDArray[np.int32]
    """Items of all rows, one after the other: [num_interactions]."""

    num_items: int
    """Exclusive bound of ``item_index``."""

    position: NDArray[np.int32] | None = None
    """Place of each item in its user's history, the oldest lowest: [num_interactions]. Places may
    have gaps. None without an order, or if nobody asked for one."""

    @classmethod
    def from_pairs(
        cls,
        user_index: Indexes,
        item_index: Indexes,
        *,
        num_users: int,
        num_items: int,
        position: Indexes | None = None,
    ) -> Histories:
        """Return histories of (user, item) pairs in any order; the last of equal pairs counts.

        Indexes must lie in [0, num_users) and [0, num_items).
        """
        users = np.asarray(user_index)
        items = np.asarray(item_index)
        assert users.shape == items.shape, "one item per user entry"
        for index, bound in ((users, num_users), (items, num_items)):
            assert not len(index) or 0 <= index.min() <= index.max() < bound, "outside its bounds"
        if not is_strictly_sorted(users, items):
            # One key of 64 bits for each pair: one sort in place of a sort by two columns.
            keys = users.astype(np.int64) * max(num_items, 1) + items
            keys, position = _deduplicate(keys, position)
            users, items = np.divmod(keys, max(num_items, 1))
        return cls.from_sorted(
            users, items, num_users=num_users, num_items=num_items, position=position
        )

    @classmethod
    def from_sorted(
        cls,
        users: Indexes,
        items: Indexes,
        *,
        num_users: int,
        num_items: int,
        position: Indexes | None = None,
    ) -> Histories:
        """Return histories of pairs that already ascend by user, then item, without repeats."""
        offsets = np.zeros(num_users + 1, dtype=np.int64)
        np.cumsum(np.bincount(users, minlength=num_users), out=offsets[1:])
        return cls(
            offsets=offsets,
            item_index=items.astype(np.int32),
            num_items=num_items,
            position=None if position is None else position.astype(np.int32),
        )

    @classmethod
    def empty(cls, *, num_users: int, num_items: int) -> Histories:
        """Return histories of users without any item."""
        return cls(
            offsets=np.zeros(num_users + 1, dtype=np.int64),
            item_index=np.zeros(0, dtype=np.int32),
            num_items=num_items,
            position=np.zeros(0, dtype=np.int32),  # no rows, so no order
        )

    @property
    def num_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_interactions(self) -> int:
        return len(self.item_index)

    def __len__(self) -> int:
        return self.num_users

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of items in each row, int64 [num_users]."""
        return self.offsets[1:] - self.offsets[:-1]  # `np.diff` takes three times as long for one

    def row_index(self) -> NDArray[np.int32]:
        """Return the row of each entry of ``item_index``, int32 [num_interactions]."""
        return np.repeat(np.arange(self.num_users, dtype=np.int32), self.lengths())

    def user_bounds(self, num_parts: int) -> list[int]:
        """Return bounds of contiguous parts, as `Dataset.user_bounds` does: [num_parts + 1]."""
        first = self.num_interactions * np.arange(1, num_parts) // num_parts
        # The user whose row has that interaction: `right` passes over users without interactions.
        inner = np.searchsorted(self.offsets, first, side="right") - 1
        return [0, *inner.tolist(), self.num_users]

    def __getitem__(self, rows: slice) -> Histories:
        """Return consecutive rows, as views of the same arrays."""
        start, stop, step = rows.indices(self.num_users)
        assert step == 1, "histories slice by consecutive rows only"
        offsets = self.offsets[start : max(start, stop) + 1]
        return self._entries(offsets - offsets[0], slice(offsets[0], offsets[-1]))

    def rows(self, index: Indexes) -> Histories:
        """Return the given rows, in the given order; a row may be given more than once."""
        # Rows that follow one another, as in every batch of an evaluation, are views: no copy.
        if len(index) and np.array_equal(index, np.arange(index[0], index[0] + len(index))):
            return self[int(index[0]) : int(index[-1]) + 1]
        starts = self.offsets[index]
        lengths = self.offsets[np.asarray(index) + 1] - starts
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        entries = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return self._entries(offsets, entries)

    def _entries(
        self, offsets: NDArray[np.int64], entries: slice | NDArray[np.int64] | NDArray[np.bool_]
    ) -> Histories:
        """Return histories of some entries of ``item_index``."""
        position = None if self.position is None else self.position[entries]
        return replace(
            self, offsets=offsets, item_index=self.item_index[entries], position=position
        )

    def oldest_first(self) -> NDArray[np.int64]:
        """Return the entries of ``item_index``, row by row in the order of ``position``.

        Without positions each row keeps the order of its items: [num_interactions].
        """
        if self.position is None:
            return np.arange(self.num_interactions)
        return np.lexsort((self.position, self.row_index()))

    def padded(self, num_users: int, first: int = 0) -> Histories:
        """Return these rows after ``first`` empty rows, with empty rows up to ``num_users``."""
        assert num_users >= first + self.num_users, "padding cannot take rows away"
        # Empty rows behind repeat the last offset.
        offsets = np.full(num_users + 1, self.offsets[-1])
        offsets[:first] = 0
        offsets[first : first + len(self.offsets)] = self.offsets
        return replace(self, offsets=offsets)

    def within(self, num_items: int) -> Histories:
        """Return these rows without the items at or above ``num_items``."""
        if num_items >= self.num_items:
            return replace(self, num_items=num_items)
        return replace(self.where(self.item_index < num_items), num_items=num_items)

    def where(self, kept: NDArray[np.bool_]) -> Histories:
        """Return these rows with only the entries that ``kept`` marks: [num_interactions]."""
        running = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))
        # The number of kept entries before an offset is the offset among kept entries.
        return self._entries(running[self.offsets], kept)

    def find(self, other: Histories) -> NDArray[np.int64]:
        """Return the index in ``item_index`` of each entry of ``other``, searched in the same row;
        -1 if the entry is absent. Both have the same number of rows. Fast if ``other`` is small."""
        assert self.num_users == other.num_users, "rows are searched one to one"
        if self.num_interactions == 0:
            return np.full(other.num_interactions, -1)
        num_items = max(self.num_items, other.num_items)
        keys, wanted = self._keys(num_items), other._keys(num_items)
        # The place of a key above all others is one past the end.
        entry = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[entry] == wanted, entry, -1)

    def union(self, other: Histories) -> Histories:
        """Return the items of both, row by row; both have the same number of rows.

        An item of both has its position of ``other``. The union has positions if both have
        them.
        """
        assert self.num_users == other.num_users, "a union joins rows one to one"
        num_items = max(self.num_items, other.num_items)
        keys = np.concatenate((self._keys(num_items), other._keys(num_items)))
        position: Indexes | None = None
        if self.position is not None and other.position is not None:
            position = np.concatenate((self.position, other.position))
        keys, position = _deduplicate(keys, position)
        users, items = np.divmod(keys, max(num_items, 1))
        return Histories.from_sorted(
            users, items, num_users=self.num_users, num_items=num_items, position=position
        )

    def followed_by(self, other: Histories) -> Histories:
        """Return the `union`, with all items of ``other`` behind the items of these rows."""
        if self.position is None or other.position is None:
            return self.union(other)
        behind = 1 + self.position.max(initial=-1) - other.position.min(initial=0)
        return self.union(replace(other, position=other.position + behind))

    def _keys(self, num_items: int) -> NDArray[np.int64]:
        """Return each pair as one integer, in the order of the pairs."""
        return self.row_index().astype(np.int64) * num_items + self.item_index


def is_strictly_sorted(users: Indexes, items: Indexes) -> bool:
    """Return True if pairs ascend by user, then item, without repeats."""
    same_user = users[1:] == users[:-1]
    return bool(np.all((users[1:] > users[:-1]) | (same_user & (items[1:] > items[:-1]))))


def _deduplicate(
    keys: NDArray[np.int64], position: Indexes | None
) -> tuple[NDArray[np.int64], Indexes | None]:
    """Return the distinct keys, ascending, and the last position of each."""
    # A stable sort merges sorted runs without sorting them again. Keys are 0 or more, so the last
    # key always differs from the -1 behind it.
    if position is None:
        keys = np.sort(keys, kind="stable")
        return keys[np.diff(keys, append=-1) != 0], None
    order = np.argsort(keys, kind="stable")
    is_last = np.diff(keys[order], append=-1) != 0
    return keys[order][is_last], position[order][is_last]
