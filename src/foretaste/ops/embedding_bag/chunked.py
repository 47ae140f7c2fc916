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

from foretaste.ops.buffers import Buffers
from foretaste.ops.embedding_bag.dropout import keep_scale, kept_entries
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.segments import Segments, sum_bags


@dataclass(frozen=True)
class _Kept:
    """The entries that dropout keeps."""

    histories: HistoryTensors
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
    kept = _kept(histories, dropout, key, table_IH.dtype)
    result = _Bags.apply(table_IH, kept, buffers or Buffers())  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


def _kept(
    histories: HistoryTensors, dropout: float, key: int | Tensor, dtype: torch.dtype
) -> _Kept:
    weight_B = histories.lengths().clamp_(min=1).to(dtype).rsqrt_()
    if dropout == 0.0:
        return _Kept(histories, weight_B[:, None])
    item_index_N = histories.item_index
    is_kept_N = kept_entries(item_index_N.numel(), dropout, key, item_index_N.device)
    kept_n = is_kept_N.nonzero().squeeze(1)
    offsets = torch.searchsorted(kept_n, histories.offsets)
    kept = HistoryTensors(offsets, item_index_N.index_select(0, kept_n), histories.num_items)
    return _Kept(kept, weight_B.mul_(keep_scale(dropout))[:, None])


class _Bags(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table_IH: Tensor, kept: _Kept, buffers: Buffers) -> Tensor:
        ctx.kept, ctx.buffers = kept, buffers
        sums_BH = sum_bags(table_IH, kept.histories.item_index, kept.histories.offsets)
        return sums_BH.mul_(kept.weight_B1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        histories = ctx.kept.histories
        sums_IH = Segments(histories.item_index, histories.num_items).sum(
            upstream[0] * ctx.kept.weight_B1,
            histories.row_index(),
            buffers=ctx.buffers,
            name="encoder gradient",
        )
        return sums_IH, None, None
