"""Matrix products of two activations, by the fastest kernel that computes exactly that."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.linear import linear


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


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``; either may be a transposed view; not differentiable.

    In float32 on the CPU through `linear`, which is twice as fast even where it has to copy a view;
    in bfloat16 both reach the same kernels and ``@`` takes views as they are.
    """
    if left.device.type == "cpu" and left.dtype == torch.float32:
        return linear(left, right.T)
    return left @ right
