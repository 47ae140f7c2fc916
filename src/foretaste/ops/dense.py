"""Layers of a network, computed by the fastest exact kernels.

PyTorch's fp32 ``linear`` on the CPU calls a BLAS. On AVX-512 machines that reaches half the speed
of oneDNN. oneDNN's fused linear is private in PyTorch: it is used where `fuses` finds it, and the
public functions elsewhere. `dense` and `activate` are differentiable; the rest is not.

Shape suffixes: S samples, N inputs, M outputs; B users, K candidates of each, I items, D width,
c users of a chunk.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.limits import LIMITS
from foretaste.ops.torch_internals import (
    fused_linear,
    has_fused_linear,
    has_sampled_products,
    relu_backward,
    sampled_products,
    tanh_backward,
)

Activation = Literal["tanh", "relu"]  # their slopes follow from results: see `slope`

_ROWS_OF_PIECE = 64


class _DenseContext(Context):
    activation: Activation | None
    dtypes: tuple[torch.dtype, torch.dtype]
    """The dtypes of the values and of the parameters."""
    has_bias: bool


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _DenseContext,
        input_SN: Tensor,
        weight_MN: Tensor,
        bias_M: Tensor | None,
        activation: Activation | None,
        dtype: torch.dtype,
    ) -> Tensor:
        product_input_SN, product_weight_MN = input_SN.to(dtype), weight_MN.to(dtype)
        bias_M = None if bias_M is None else bias_M.to(dtype)
        # Slopes of tanh and relu follow from their results, so the values before them are not kept.
        result_SM = linear(product_input_SN, product_weight_MN, bias_M, activation)
        ctx.save_for_backward(product_input_SN, product_weight_MN, result_SM)
        ctx.activation, ctx.dtypes = activation, (input_SN.dtype, weight_MN.dtype)
        ctx.has_bias = bias_M is not None
        return result_SM

    @staticmethod
    @once_differentiable
    def backward(ctx: _DenseContext, *upstream: Tensor) -> Gradients:
        input_SN, weight_MN, result_SM = ctx.saved_tensors
        input_dtype, weight_dtype = ctx.dtypes
        gradient_SM = slope(upstream[0], result_SM, ctx.activation)
        input_gradient_SN = product(gradient_SM, weight_MN).to(input_dtype)
        weight_gradient_MN = product(gradient_SM.T, input_SN).to(weight_dtype)
        bias_gradient_M = sum_of_samples(gradient_SM, weight_dtype) if ctx.has_bias else None
        return input_gradient_SN, weight_gradient_MN, bias_gradient_M, None, None


def dense(
    input_SN: Tensor,
    weight_MN: Tensor,
    bias_M: Tensor | None,
    activation: Activation | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return ``activation(input @ weight.T + bias)``, [S, M]; differentiable once.

    Products are computed in ``compute_dtype``, by default the input's, and the result has that
    dtype: between layers, half precision is half the memory.
    """
    dtype = compute_dtype or input_SN.dtype
    if not torch.is_grad_enabled():  # a graph costs more than small products
        bias_M = None if bias_M is None else bias_M.to(dtype)
        return linear(input_SN.to(dtype), weight_MN.to(dtype), bias_M, activation)
    result = _Dense.apply(input_SN, weight_MN, bias_M, activation, dtype)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _DenseContext,
        value_SM: Tensor,
        bias_M: Tensor,
        activation: Activation | None,
        dtype: torch.dtype | None,
    ) -> Tensor:
        result_SM = _activate(value_SM, bias_M, activation, dtype)
        ctx.activation, ctx.dtypes = activation, (value_SM.dtype, bias_M.dtype)
        ctx.save_for_backward(result_SM)
        return result_SM

    @staticmethod
    @once_differentiable
    def backward(ctx: _DenseContext, *upstream: Tensor) -> Gradients:
        (result_SM,) = ctx.saved_tensors
        value_dtype, bias_dtype = ctx.dtypes
        gradient_SM = slope(upstream[0], result_SM, ctx.activation)
        bias_gradient_M = sum_of_samples(gradient_SM, bias_dtype)
        return gradient_SM.to(value_dtype), bias_gradient_M, None, None


def activate(
    value_SM: Tensor,
    bias_M: Tensor,
    activation: Activation | None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return ``activation(value + bias)`` in ``dtype``, else the value's; differentiable once."""
    if not torch.is_grad_enabled():
        return _activate(value_SM, bias_M, activation, dtype)
    result = _Activated.apply(value_SM, bias_M, activation, dtype)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


def _activate(
    value_SM: Tensor,
    bias_M: Tensor,
    activation: Activation | None,
    dtype: torch.dtype | None,
) -> Tensor:
    return activate_(value_SM + bias_M, activation).to(dtype or value_SM.dtype)


def activate_(value: Tensor, activation: Activation | None) -> Tensor:
    """Return ``activation(value)``, computed in place; ``value`` itself for None."""
    if activation == "relu":
        return value.relu_()
    if activation == "tanh":
        # tanh(x) = 2 sigmoid(2 x) - 1. Half precision takes PyTorch's: its numbers near 1 are so
        # far apart that tanh(0.001) would be 0 in bfloat16.
        if value.device.type == "cpu" and value.dtype.itemsize >= 4:
            # to within a rounding of 1; PyTorch's own takes eight times as long
            return value.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)
        return value.tanh_()
    return value


def slope(upstream: Tensor, result: Tensor, activation: Activation | None) -> Tensor:
    """Return the gradient of an activation's input, from the gradient of its ``result``.

    It is new memory, except without an activation: then it is ``upstream`` itself.
    """
    if activation == "relu":
        return relu_backward(upstream, result)
    if activation == "tanh":
        return tanh_backward(upstream, result)
    return upstream


def linear(
    input_SN: Tensor,
    weight_MN: Tensor,
    bias_M: Tensor | None = None,
    activation: Activation | None = None,
) -> Tensor:
    """Return ``activation(input @ weight.T + bias)``, [S, M].

    If `fuses`, the whole layer is computed in float32 and rounded once.
    """
    # In float32 PyTorch's own reached 210 GFLOP/s on these shapes and oneDNN 407 to 496, in bf16
    # 760 to 960. `set_float32_matmul_precision` does not help, because it rounds to tf32 on CUDA.
    # One row reads every weight once. There a BLAS took 43 us for 600 x 400 and 0.8 ms for 600 x
    # 3,706 numbers, and oneDNN 100 us and 1.2 ms. `fuses` comes first: it is False in an export,
    # and a look at the rows would fix their number in the program.
    if fuses(input_SN) and not (len(input_SN) == 1 and input_SN.dtype == torch.float32):
        return fused_linear(input_SN, weight_MN, bias_M, activation or "none")
    return activate_(F.linear(input_SN, weight_MN, bias_M), activation)


def fuses(tensor: Tensor) -> bool:
    """Return True if oneDNN multiplies the tensor, with bias and activation in the same pass.

    Exported programs have public operations alone.
    """
    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_exporting()
        and tensor.dtype in (torch.float32, torch.bfloat16)
        and has_fused_linear(tensor.dtype)
    )


def product_of_samples(left_SM: Tensor, right_SN: Tensor) -> Tensor:
    """Return ``left.T @ right`` [M, N], summed over samples, as gradients of weights are.

    On a GPU half precision gives float32. float16 gives float32 everywhere: its range is too small
    for sums of many samples.
    """
    if left_SM.is_cuda and left_SM.dtype.itemsize == 2:
        return torch.mm(left_SM.T, right_SN, out_dtype=torch.float32)
    if left_SM.dtype == torch.float16:
        return left_SM.float().T @ right_SN.float()
    return left_SM.T @ right_SN


def sum_of_samples(rows_SM: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum of all rows [M] in ``dtype``, as gradients of biases are."""
    if rows_SM.device.type != "cpu" or rows_SM.dtype == dtype or len(rows_SM) <= _ROWS_OF_PIECE:
        return rows_SM.sum(0, dtype=dtype)
    # `sum(dtype=...)` would copy all rows into that dtype first. embedding_bag adds each piece up
    # in float32 and rounds it once, without a copy.
    row_S = torch.arange(len(rows_SM))
    # [S / 64, M], in the dtype of the rows.
    pieces = F.embedding_bag(row_S, rows_SM, row_S[::_ROWS_OF_PIECE], mode="sum")
    return pieces.sum(0, dtype=dtype)


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``; either may be a transposed view."""
    # oneDNN is twice as fast in float32, even if it has to copy a view; in bfloat16 `@` reaches
    # the same kernels. `linear` leaves one row to a BLAS. oneDNN refuses a product over no columns.
    if left.device.type == "cpu" and left.dtype == torch.float32 and left.numel():
        return linear(left, right.T)
    return left @ right


def candidate_products(vector_BD: Tensor, table_ID: Tensor, index_BK: Tensor) -> Tensor:
    """Return ``table[index] . vector``, [B, K]: the products of each row with its own candidates.

    On a CPU where PyTorch has sampled products of the dtype, no rows of the table are gathered,
    which is six times as fast with 512 candidates of width 64. Elsewhere the candidates of a few
    rows are gathered at a time.
    """
    products_BK = vector_BD.new_empty(index_BK.shape)
    samples = vector_BD.device.type == "cpu" and vector_BD.dtype.itemsize >= 4
    samples = samples and 0 < index_BK.shape[1] <= len(table_ID) and has_sampled_products()
    samples = samples and table_ID.is_contiguous()  # a tensor in another layout would be copied
    numbers_each = index_BK.shape[1] * (1 if samples else vector_BD.shape[1])
    rows_at_once = max(1, LIMITS[vector_BD.device.type].candidate_numbers // max(1, numbers_each))
    for start in range(0, len(vector_BD), rows_at_once):
        rows = slice(start, start + rows_at_once)
        vector_cD, index_cK = vector_BD[rows], index_BK[rows]
        if samples:
            num_products, num_candidates = index_cK.numel(), index_cK.shape[1]
            # CSR offsets: every row has K products.
            offsets = torch.arange(0, num_products + 1, num_candidates, dtype=index_cK.dtype)
            found_S = sampled_products(vector_cD, table_ID, offsets, index_cK.reshape(-1))
            products_BK[rows] = found_S.view_as(index_cK)
        else:
            gathered_cKD = table_ID[index_cK]
            products_BK[rows] = torch.bmm(gathered_cKD, vector_cD[:, :, None]).squeeze(2)
    return products_BK
