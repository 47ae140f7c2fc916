"""The history encoder as sums of table rows: dropped entries are never read, either way.

Backward sorts what was kept by item and sums each item's segment, so every row of the table's
gradient is written once and in the same order each time.

Shape suffixes: B users, N interactions, n those that dropout keeps, I items, H width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from foretaste.ops.buffers import Buffers
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.history_encoder.dropout import keep_scale, kept_entries
from foretaste.ops.segments import Segments


@dataclass(frozen=True)
class _Entries:
    """The entries that dropout keeps, by user."""

    row_index_n: Tensor
    item_index_n: Tensor
    offsets: Tensor
    weight_B1: Tensor
    """1 / sqrt(length of the history), scaled for what dropout keeps; one for all its entries."""


def encode(
    table_IH: Tensor,
    histories: HistoryTensors,
    *,
    dropout: float = 0.0,
    key: int | Tensor = 0,
    buffers: Buffers | None = None,
) -> Tensor:
    """As `reference.encode`, differentiable once with respect to the table."""
    entries = _entries(histories, dropout, key, table_IH.dtype)
    result = _Bags.apply(table_IH, entries, buffers or Buffers())  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


def _entries(
    histories: HistoryTensors, dropout: float, key: int | Tensor, dtype: torch.dtype
) -> _Entries:
    row_index, item_index = histories.row_index(), histories.item_index
    offsets, scale = histories.offsets, 1.0
    if dropout > 0.0:
        is_kept = kept_entries(row_index.numel(), dropout, key, row_index.device)
        kept = is_kept.nonzero().squeeze(1)
        row_index, item_index = row_index.index_select(0, kept), item_index.index_select(0, kept)
        rows = torch.arange(len(histories) + 1, device=row_index.device)
        offsets, scale = torch.searchsorted(row_index, rows), keep_scale(dropout)
    weight_B = scale * histories.lengths().clamp_(min=1).to(dtype).rsqrt_()
    return _Entries(row_index, item_index, offsets, weight_B[:, None])


class _Bags(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table_IH: Tensor, entries: _Entries, buffers: Buffers) -> Tensor:
        ctx.num_items, ctx.entries, ctx.buffers = table_IH.shape[0], entries, buffers
        offsets = entries.offsets.to(torch.int32)
        sums_BH = F.embedding_bag(
            entries.item_index_n, table_IH, offsets, mode="sum", include_last_offset=True
        )
        return sums_BH.mul_(entries.weight_B1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        entries = ctx.entries
        sums_IH = Segments(entries.item_index_n, ctx.num_items).sum(
            upstream[0] * entries.weight_B1,
            entries.row_index_n,
            buffers=ctx.buffers,
            name="encoder gradient",
        )
        return sums_IH, None, None
