"""Differentiable layers whose products run in the dtype and kernel that are fastest.

Shape suffixes: S samples, N inputs, M outputs.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.activations import Activation, activate_, slope
from foretaste.ops.linear import linear
from foretaste.ops.products import product, sum_of_samples


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_SN: Tensor,
        weight_MN: Tensor,
        bias_M: Tensor,
        activation: Activation | None,
        dtype: torch.dtype,
    ) -> Tensor:
        product_input_SN, product_weight_MN = input_SN.to(dtype), weight_MN.to(dtype)
        result_SM = linear(product_input_SN, product_weight_MN, bias_M.to(dtype), activation)
        ctx.save_for_backward(product_input_SN, product_weight_MN, result_SM)
        ctx.activation, ctx.dtypes = activation, (input_SN.dtype, weight_MN.dtype)
        return result_SM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        input_SN, weight_MN, result_SM = ctx.saved_tensors
        input_dtype, weight_dtype = ctx.dtypes
        gradient_SM = slope(upstream[0], result_SM, ctx.activation)
        input_gradient_SN = product(gradient_SM, weight_MN).to(input_dtype)
        weight_gradient_MN = product(gradient_SM.T, input_SN).to(weight_dtype)
        bias_gradient_M = sum_of_samples(gradient_SM, weight_dtype)
        return input_gradient_SN, weight_gradient_MN, bias_gradient_M, None, None


def dense(
    input_SN: Tensor,
    weight_MN: Tensor,
    bias_M: Tensor,
    activation: Activation | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """``activation(input @ weight.T + bias)``, [S, M]; differentiable once.

    Products are computed in ``compute_dtype``, by default the input's, and the result is of it:
    between layers, half precision is half the memory.
    """
    dtype = compute_dtype or input_SN.dtype
    result = _Dense.apply(input_SN, weight_MN, bias_M, activation, dtype)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        value_SM: Tensor,
        bias_M: Tensor,
        activation: Activation | None,
        dtype: torch.dtype | None,
    ) -> Tensor:
        result_SM = activate_(value_SM + bias_M, activation).to(dtype or value_SM.dtype)
        ctx.activation, ctx.dtypes = activation, (value_SM.dtype, bias_M.dtype)
        ctx.save_for_backward(result_SM)
        return result_SM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        (result_SM,) = ctx.saved_tensors
        value_dtype, bias_dtype = ctx.dtypes
        gradient_SM = slope(upstream[0], result_SM, ctx.activation)
        bias_gradient_M = sum_of_samples(gradient_SM, bias_dtype)
        return gradient_SM.to(value_dtype), bias_gradient_M, None, None


def activated(
    value_SM: Tensor,
    bias_M: Tensor,
    activation: Activation | None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """``activation(value + bias)`` in ``dtype``, by default the value's; differentiable once."""
    result = _Activated.apply(value_SM, bias_M, activation, dtype)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)
