"""Features of items: facts beside their interactions, such as category and brand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from foretaste.data.histories import Histories

_COLUMNS = ("column", "value", "items")


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The feature values of a dataset's items.

    Every value has at least two items, and at most half of all described or kept items.
    """

    histories: Histories
    """The items of each value: one row per value, over the listed items, without positions."""

    names: tuple[tuple[str, str], ...]
    """The column and the value of each row, such as ``("category", "wine")``."""

    @classmethod
    def of_table(cls, table: pa.Table, num_items: int) -> Self:
        """Return features over the listed items, from the rows of `table`."""
        columns, values, lists = (table[name].combine_chunks() for name in _COLUMNS)
        offsets = np.asarray(lists.offsets).astype(np.int64)
        return cls(
            histories=Histories(
                offsets=offsets - offsets[0],
                item_index=np.asarray(lists.flatten()),
                num_items=num_items,
            ),
            names=tuple(zip(columns.to_pylist(), values.to_pylist(), strict=True)),
        )

    def table(self) -> pa.Table:
        """Return a row for each value: its column, the value, and its items as a list."""
        columns, values = zip(*self.names, strict=True)
        offsets = pa.array(self.histories.offsets, pa.int64())
        items = pa.LargeListArray.from_arrays(offsets, pa.array(self.histories.item_index))
        rows = pa.array(columns, pa.string()), pa.array(values, pa.string()), items
        return pa.table(dict(zip(_COLUMNS, rows, strict=True)))

    def as_lists(self, num_items: int) -> dict[str, pa.Array]:
        """Return the values of each item by column, as lists: [num_items], listed items first."""
        column_V, value_V = (np.array(one, dtype=object) for one in zip(*self.names, strict=True))
        rows, items = self.histories.row_index(), self.histories.item_index
        lists = {}
        # The columns with values, in the order of the setting.
        for name in dict.fromkeys(column_V.tolist()):
            is_own = column_V[rows] == name
            order = np.argsort(items[is_own], kind="stable")
            ends = np.cumsum(np.bincount(items[is_own], minlength=num_items))
            offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
            values = pa.array(value_V[rows[is_own][order]], pa.string())
            lists[name] = pa.ListArray.from_arrays(offsets, values)
        return lists
