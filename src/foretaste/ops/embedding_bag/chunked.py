"""The history encoder as sums of table rows: dropped entries are never read, either way.

Backward sorts what was kept by item and sums each item's segment, so every row of the table's
gradient is written once and in the same order each time.

Shape suffixes: B users, N interactions, n those that dropout keeps, I items, H width.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.buffers import Buffers
from foretaste.ops.dropout import ENTRY_BITS, keep_entries, keep_rate
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.segments import Segments, sum_bags


def encode(
    table_IH: Tensor,
    histories: HistoryTensors,
    *,
    dropout: float = 0.0,
    key: int | Tensor = 0,
    buffers: Buffers | None = None,
) -> Tensor:
    """As `reference.encode`, differentiable once with respect to the table."""
    weight_B = histories.lengths().clamp_(min=1).to(table_IH.dtype).rsqrt_()
    if dropout > 0.0:
        item_index_N = histories.item_index
        kept_n = keep_entries(histories, dropout, key).nonzero().squeeze(1)
        offsets = torch.searchsorted(kept_n, histories.offsets)
        item_index_n = item_index_N.index_select(0, kept_n)
        histories = HistoryTensors(offsets, item_index_n, histories.num_items)
        weight_B.mul_(1.0 / keep_rate(dropout, ENTRY_BITS))
    if not torch.is_grad_enabled():
        return sum_bags(table_IH, histories.item_index, histories.offsets).mul_(weight_B[:, None])
    result = _Bags.apply(table_IH, histories, weight_B[:, None], buffers or Buffers())  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _Bags(torch.autograd.Function):
    """Sums of each user's table rows, times the user's weight."""

    @staticmethod
    def forward(
        ctx: Any, table_IH: Tensor, histories: HistoryTensors, weight_B1: Tensor, buffers: Buffers
    ) -> Tensor:
        ctx.histories, ctx.weight_B1, ctx.buffers = histories, weight_B1, buffers
        return sum_bags(table_IH, histories.item_index, histories.offsets).mul_(weight_B1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        sums_IH = Segments(ctx.histories.item_index, ctx.histories.num_items).sum(
            upstream[0] * ctx.weight_B1,
            ctx.histories.row_index(),
            buffers=ctx.buffers,
            name="encoder gradient",
        )
        return sums_IH, None, None, None
