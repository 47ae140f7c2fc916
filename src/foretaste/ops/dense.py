"""A differentiable linear layer whose three products run in the dtype and kernel that are fastest.

Shape suffixes: S samples, N inputs, M outputs.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.linear import linear
from foretaste.ops.products import product


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input_SN: Tensor, weight_MN: Tensor, bias_M: Tensor, dtype: torch.dtype
    ) -> Tensor:
        product_input_SN, product_weight_MN = input_SN.to(dtype), weight_MN.to(dtype)
        ctx.save_for_backward(product_input_SN, product_weight_MN)
        ctx.dtype = input_SN.dtype
        return linear(product_input_SN, product_weight_MN, bias_M.to(dtype)).to(input_SN.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        input_SN, weight_MN = ctx.saved_tensors
        gradient_SM = upstream[0].to(weight_MN.dtype)
        input_gradient_SN = product(gradient_SM, weight_MN).to(ctx.dtype)
        weight_gradient_MN = product(gradient_SM.T, input_SN).to(ctx.dtype)
        return input_gradient_SN, weight_gradient_MN, upstream[0].sum(0), None


def dense(
    input_SN: Tensor, weight_MN: Tensor, bias_M: Tensor, compute_dtype: torch.dtype | None = None
) -> Tensor:
    """``input @ weight.T + bias``, [S, M] of the input's dtype; differentiable once.

    Products are computed in ``compute_dtype``, by default the input's.
    """
    dtype = compute_dtype or input_SN.dtype
    result = _Dense.apply(input_SN, weight_MN, bias_M, dtype)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)
