"""Features of items: what is known of them beside interactions, such as category and brand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from foretaste.data.histories import Histories


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The feature values of a dataset's items.

    Every value has at least two items, and at most half of all that were described or kept.
    """

    histories: Histories
    """The items of each value: one row per value, over the listed items, without positions."""

    names: tuple[tuple[str, str], ...]
    """The column and the value of each row, such as ``("category", "wine")``."""

    def as_lists(self, num_items: int) -> dict[str, pa.Array]:
        """The values of each item by column, as lists for a table of ``num_items`` items, of which
        the listed ones are the first."""
        column_V, value_V = (np.array(one, dtype=object) for one in zip(*self.names, strict=True))
        rows, items = self.histories.row_index(), self.histories.item_index
        lists = {}
        # The columns that have values, in the order in which they were asked for.
        for name in dict.fromkeys(column_V.tolist()):
            is_own = column_V[rows] == name
            order = np.argsort(items[is_own], kind="stable")
            ends = np.cumsum(np.bincount(items[is_own], minlength=num_items))
            offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
            values = pa.array(value_V[rows[is_own][order]], pa.string())
            lists[name] = pa.ListArray.from_arrays(offsets, values)
        return lists
