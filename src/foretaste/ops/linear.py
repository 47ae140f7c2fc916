"""Layers of a network, by the fastest kernels that compute exactly that.

PyTorch's fp32 ``linear`` on the CPU goes through a BLAS that on AVX-512 machines reaches half of
what oneDNN does; oneDNN's fused linear is private in PyTorch, as is the sum with its relu in one
pass, so they are used where they are found to be there and the public functions elsewhere.

Shape suffixes: S samples, N inputs, M outputs.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.activations import Fused, activate_


def linear(
    input_SN: Tensor,
    weight_MN: Tensor,
    bias_M: Tensor | None = None,
    activation: Fused | None = None,
) -> Tensor:
    """``activation(input @ weight.T + bias)``, [S, M]; not differentiable.

    Where `fuses`, all of it is computed in float32 and rounded once; the bias may be float32 then.
    """
    if fuses(input_SN):
        return _onednn(input_SN, weight_MN, bias_M, activation or "none")
    return activate_(F.linear(input_SN, weight_MN, bias_M), activation)


def add_relu(left: Tensor, right: Tensor, *, out: Tensor, is_finite: bool) -> Tensor:
    """``relu(left + right)``, written to ``out``; not differentiable.

    ``is_finite`` promises that every sum is: only then does one pass do what two would.
    """
    fits = is_finite and left.device.type == "cpu" and left.dtype == torch.float32
    if fits and _has_add_relu():
        result: Tensor = torch.ops.aten._add_relu.out(left, right, out=out)
        return result
    return torch.add(left, right, out=out).relu_()


def packed(weight_MN: Tensor, num_samples: int) -> Tensor:
    """The weight laid out for many products of about ``num_samples`` rows: 2 to 5 % faster.

    Nothing but `linear` can read it.
    """
    if not fuses(weight_MN):
        return weight_MN
    result: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_MN, num_samples)
    return result


def fuses(tensor: Tensor) -> bool:
    """Whether products of such a tensor are oneDNN's, their bias and activation within them."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in (torch.float32, torch.bfloat16)
        and _has_onednn(tensor.dtype)
    )


def _onednn(input_SN: Tensor, weight_MN: Tensor, bias_M: Tensor | None, post: str) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(input_SN, weight_MN, bias_M, post, [], "")
    return result


@cache
def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether the fused linear is there and this processor computes it in ``dtype``."""
    try:
        ones = torch.ones(2, 2, dtype=dtype)
        weight = torch.ops.mkldnn._reorder_linear_weight(ones, 2)
        bias = torch.tensor([-3.0, -1.0], dtype=dtype)
        relu, tanh = (_onednn(ones, weight, bias, name) for name in ("relu", "tanh"))
        sums = 2.0 + bias.expand(2, 2)
        return torch.equal(relu, sums.relu()) and torch.allclose(tanh, sums.tanh(), atol=0.01)
    except (AttributeError, RuntimeError, TypeError):
        return False


@cache
def _has_add_relu() -> bool:
    """Whether the fused sum is there."""
    try:
        two = torch.full((1,), 2.0)
        found = torch.ops.aten._add_relu.out(two, -two.expand(3, 1), out=torch.empty(3, 1))
        return bool((found == 0.0).all())
    except (AttributeError, RuntimeError, TypeError):
        return False
