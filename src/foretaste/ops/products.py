"""Matrix products of two activations, by the fastest kernel that computes exactly that."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.linear import linear


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``; either may be a transposed view; not differentiable.

    In float32 on the CPU through `linear`, which is twice as fast even where it has to copy a view;
    in bfloat16 both reach the same kernels and ``@`` takes views as they are.
    """
    if left.device.type == "cpu" and left.dtype == torch.float32:
        return linear(left, right.T)
    return left @ right
