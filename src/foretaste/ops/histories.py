"""Histories of many users as CSR tensors on one device.

Shape suffixes: B users (rows), N interactions of these users, I items of the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foretaste.ops.random import hash_words, logical_shift_right

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, eq=False)
class HistoryTensors:
    """The items of B users: row b holds ``item_index[offsets[b]:offsets[b + 1]]``, ascending.

    ``offsets`` is int64 [B + 1], ``item_index`` int32 [N] with values in [0, num_items); ``weight``
    is float32 [N], above 0, or None if each interaction has weight 1. ``position`` is int32 [N],
    the place of each item in its user's history, the oldest lowest, or None without an order.
    Places may have gaps; no two items of a row share one.
    Slicing (``histories[a:b]``) gives consecutive rows, ``rows(index)`` any rows.
    """

    offsets: Tensor
    item_index: Tensor
    num_items: int
    weight: Tensor | None = None
    position: Tensor | None = None

    @classmethod
    def from_numpy(
        cls,
        offsets: np.ndarray,
        item_index: np.ndarray,
        num_items: int,
        device: torch.device | str,
        position: np.ndarray | None = None,
    ) -> HistoryTensors:
        """Copy a CSR pair, and the position of each entry, from NumPy to ``device``."""
        return cls(
            # `astype` copies: memory shared with arrays of Arrow, which are read-only, makes a
            # warning. `torch.tensor` copies too, in three times as long for short arrays.
            torch.from_numpy(offsets.astype("int64")).to(device),
            torch.from_numpy(item_index.astype("int32")).to(device),
            num_items,
            position=None
            if position is None
            else torch.from_numpy(position.astype("int32")).to(device),
        )

    def __len__(self) -> int:
        return self.offsets.numel() - 1

    def __getitem__(self, rows: slice) -> HistoryTensors:
        start, stop, step = rows.indices(len(self))
        assert step == 1, "histories slice by consecutive rows only"
        offsets = self.offsets[start : max(start, stop) + 1]
        first, last = offsets[[0, -1]].tolist()
        return self._entries(offsets - first, slice(first, last))

    def _entries(self, offsets: Tensor, entries: slice | Tensor) -> HistoryTensors:
        """Return rows of some entries of ``item_index``."""
        weight = None if self.weight is None else self.weight[entries]
        position = None if self.position is None else self.position[entries]
        items = self.item_index[entries]
        return HistoryTensors(offsets, items, self.num_items, weight, position)

    @property
    def device(self) -> torch.device:
        return self.item_index.device

    def lengths(self) -> Tensor:
        """Return the number of items of each row, int64 [B]."""
        return self.offsets.diff()

    def total_weights(self) -> Tensor:
        """Return each row's sum of weights, float64 [B]; without weights its number of items."""
        lengths = self.lengths()
        if self.weight is None:
            return lengths.double()
        # `unsafe` leaves out the check of the lengths, for which the host would read them from a
        # GPU.
        return torch.segment_reduce(self.weight.double(), "sum", lengths=lengths, unsafe=True)

    def row_index(self) -> Tensor:
        """Return the row of each entry of ``item_index``, int64 [N]."""
        # Without `output_size` the host would wait for a GPU to add the lengths up.
        return torch.repeat_interleave(self.lengths(), output_size=self.item_index.numel())

    def rows(self, row_index_B: Tensor, num_entries: int | None = None) -> HistoryTensors:
        """Return the given rows, in the given order; a row may be given more than once.

        Waits for the device unless ``num_entries``, the number of all their entries, is given.
        """
        starts_B = self.offsets[row_index_B]
        lengths_B = self.offsets[row_index_B + 1] - starts_B
        offsets = torch.zeros(row_index_B.numel() + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(lengths_B, 0, out=offsets[1:])
        # From the place of an entry in the result to its place in `item_index`.
        shift_N = torch.repeat_interleave(
            starts_B - offsets[:-1], lengths_B, output_size=num_entries
        )
        return self._entries(offsets, torch.arange(shift_N.numel(), device=self.device) + shift_N)

    def within(self, num_items: int) -> HistoryTensors:
        """Return these rows without the items at or above ``num_items``."""
        if num_items >= self.num_items:
            return replace(self, num_items=num_items)
        return replace(self._where(self.item_index < num_items), num_items=num_items)

    def newest(self, num_items: int) -> HistoryTensors:
        """Return rows of their newest ``num_items`` items; without an order, a hash chooses."""
        if not len(self) or self.lengths().max() <= num_items:
            return self
        ordered = self
        if self.position is None:
            word_N = logical_shift_right(hash_words(0, self.item_index.long()), 33)
            ordered = replace(self, position=word_N.int())
        return self._where(ordered.places_back() <= num_items)

    def _where(self, is_kept_N: Tensor) -> HistoryTensors:
        num_kept = nn.functional.pad(is_kept_N.cumsum(0), (1, 0))
        return self._entries(num_kept[self.offsets], is_kept_N)

    def followed_by(self, others: HistoryTensors) -> HistoryTensors:
        """Return these rows, then rows over the same items, with weights and no positions."""
        weights = (
            torch.ones_like(rows.item_index, dtype=torch.float32)
            if rows.weight is None
            else rows.weight
            for rows in (self, others)
        )
        return HistoryTensors(
            torch.cat((self.offsets, others.offsets[1:] + self.item_index.numel())),
            torch.cat((self.item_index, others.item_index)),
            self.num_items,
            torch.cat(tuple(weights)),
        )

    def oldest_first(self) -> Tensor:
        """Return the entries of ``item_index``, row by row in ``position`` order: int64 [N]."""
        assert self.position is not None, "these histories have no order"
        if len(self) == 1:
            return self.position.argsort()
        # One key of 64 bits for each entry: one sort in place of a sort by two columns.
        return torch.argsort((self.row_index() << 32) + self.position)

    def places_back(self) -> Tensor:
        """Return the place of each entry from the end of its row, int64 [N]: 1 is the newest."""
        order_N = self.oldest_first()
        entry_N = torch.arange(len(order_N), device=self.device)
        place_N = self.offsets[1:][self.row_index()] - entry_N
        return torch.empty_like(place_N).index_copy_(0, order_N, place_N)

    def transposed(self) -> HistoryTensors:
        """Return the items' histories: rows that have each item, int32, without positions."""
        # Stable, so that each item's rows ascend.
        order_N = torch.sort(self.item_index, stable=True).indices
        offsets = torch.zeros(self.num_items + 1, dtype=torch.int64, device=self.device)
        lengths_I = torch.bincount(self.item_index, minlength=self.num_items)
        torch.cumsum(lengths_I, 0, out=offsets[1:])
        weight = None if self.weight is None else self.weight[order_N]
        return HistoryTensors(offsets, self.row_index().int()[order_N], len(self), weight)

    def to_dense(self) -> Tensor:
        """Return a float32 [B, I] matrix of weights, and zeros elsewhere; for small B only."""
        dense_BI = torch.zeros(len(self), self.num_items, device=self.device)
        weight = dense_BI.new_ones(()) if self.weight is None else self.weight
        dense_BI[self.row_index(), self.item_index.long()] = weight
        return dense_BI
