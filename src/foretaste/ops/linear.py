"""Layers of a network, by the fastest kernels that compute exactly that.

PyTorch's fp32 ``linear`` on the CPU goes through a BLAS that on AVX-512 machines reaches half of
what oneDNN does; oneDNN's fused linear is private in PyTorch, as is the sum with its relu in one
pass, so they are used where they are found to be there and the public functions elsewhere.

Shape suffixes: S samples, N inputs, M outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.activations import Fused, activate_
from foretaste.ops.torch_internals import fused_linear, has_fused_linear, packed_weight


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
        return fused_linear(input_SN, weight_MN, bias_M, activation or "none")
    return activate_(F.linear(input_SN, weight_MN, bias_M), activation)


def packed(weight_MN: Tensor, num_samples: int) -> Tensor:
    """The weight laid out for many products of about ``num_samples`` rows: 2 to 5 % faster.

    Nothing but `linear` can read it.
    """
    if not fuses(weight_MN):
        return weight_MN
    return packed_weight(weight_MN, num_samples)


def fuses(tensor: Tensor) -> bool:
    """Whether products of such a tensor are oneDNN's, their bias and activation within them."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in (torch.float32, torch.bfloat16)
        and has_fused_linear(tensor.dtype)
    )
