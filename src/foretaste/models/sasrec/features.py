"""Vectors of feature values, of which each item gets the mean.

Shape suffixes: V values, I items, N pairs of a value and an item that has it, D width.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.segments import sum_bags


class ItemValues(nn.Module):
    """A learned vector of each value; a call returns the mean [I, D] of each item's values.

    Items without a value have zeros.
    """

    def __init__(self, features: HistoryTensors, width: int, device: torch.device) -> None:
        super().__init__()
        self.value_table = nn.Parameter(torch.empty(len(features), width, device=device))
        of_items = features.transposed()
        # Both ways to read the pairs: the sums over values, and their gradients, which are sums
        # over items. Each adds up in a fixed order.
        pairs = {
            "item_N": features.item_index.long(),
            "first_item_V": features.offsets,
            "value_N": of_items.item_index.long(),
            "first_value_I": of_items.offsets,
            "share_I1": of_items.lengths().clamp(min=1).reciprocal()[:, None],
        }
        for name, tensor in pairs.items():
            self.register_buffer(name, tensor, persistent=False)  # a run has them in a file

    def forward(self) -> Tensor:
        pairs = self.value_N, self.first_value_I, self.item_N, self.first_item_V
        return cast(Tensor, _Means.apply(self.value_table, self.share_I1, *pairs))  # type: ignore[no-untyped-call]


class _Means(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        value_table: Tensor,
        share_I1: Tensor,
        value_N: Tensor,
        first_value_I: Tensor,
        item_N: Tensor,
        first_item_V: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(share_I1, item_N, first_item_V)
        return sum_bags(value_table, value_N, first_value_I).mul_(share_I1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *upstream: Tensor) -> Gradients:
        share_I1, item_N, first_item_V = ctx.saved_tensors
        return sum_bags(upstream[0] * share_I1, item_N, first_item_V), *[None] * 5
