"""Products and sums of activations, by the fastest kernel that computes exactly that."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.linear import linear

_ROWS_OF_PIECE = 64


def product_of_samples(left_SM: Tensor, right_SN: Tensor) -> Tensor:
    """``left.T @ right`` [M, N], summed over samples: what gradients of weights are.

    Half precision gives float32 on a GPU, float16 everywhere: its range is too small for sums of
    many samples.
    """
    if left_SM.is_cuda and left_SM.dtype.itemsize == 2:
        return torch.mm(left_SM.T, right_SN, out_dtype=torch.float32)
    if left_SM.dtype == torch.float16:
        return left_SM.float().T @ right_SN.float()
    return left_SM.T @ right_SN


def sum_of_samples(rows_SM: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of all rows [M]: what gradients of biases are.

    Half precision on a CPU is summed in float32 by pieces, whose sums are rounded once each: a sum
    in another dtype would make a copy of the rows first.
    """
    if rows_SM.device.type != "cpu" or rows_SM.dtype == dtype or len(rows_SM) <= _ROWS_OF_PIECE:
        return rows_SM.sum(0, dtype=dtype)
    row_S = torch.arange(len(rows_SM))
    pieces = F.embedding_bag(row_S, rows_SM, row_S[::_ROWS_OF_PIECE], mode="sum")
    return pieces.sum(0, dtype=dtype)


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``; either may be a transposed view; not differentiable.

    In float32 on the CPU through `linear`, which is twice as fast even where it has to copy a view;
    in bfloat16 both reach the same kernels and ``@`` takes views as they are.
    """
    if left.device.type == "cpu" and left.dtype == torch.float32:
        return linear(left, right.T)
    return left @ right
