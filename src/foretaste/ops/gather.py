"""Rows of a table by index, with a gradient that is summed in a fixed order.

``index_select`` adds its gradient row after row, on a GPU by atomics and so differently each time;
sorting the index once is faster on the CPU and repeatable everywhere.

Shape suffixes: B rows gathered, N rows of the table, D their width.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.buffers import Buffers
from foretaste.ops.segments import Segments


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, index_B: Tensor, buffers: Buffers | None, name: str, *tables_ND: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(index_B)
        ctx.buffers, ctx.name = buffers, name
        ctx.num_rows = tables_ND[0].shape[0]
        return tuple(table_ND.index_select(0, index_B) for table_ND in tables_ND)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients_BD: Tensor) -> Any:
        (index_B,) = ctx.saved_tensors
        segments = Segments(index_B, ctx.num_rows)
        sums = (
            segments.sum(gradient_BD.contiguous(), buffers=ctx.buffers, name=f"{ctx.name} {number}")
            for number, gradient_BD in enumerate(gradients_BD)
        )
        return None, None, None, *sums


def gather(
    index_B: Tensor, *tables_ND: Tensor, buffers: Buffers | None = None, name: str = "gather"
) -> list[Tensor]:
    """``table[index]`` [B, D] of each table; all have the same number of rows N.

    ``buffers`` keep the memory of the tables' gradients, under ``name``.
    """
    rows = _Gather.apply(index_B, buffers, name, *tables_ND)  # type: ignore[no-untyped-call]
    return list(cast(tuple[Tensor, ...], rows))
