"""The unit of half-precision gradients: float16 has no room for weights of 1 / samples."""

from __future__ import annotations

import torch
from torch import Tensor

_MOST = 100
_FLOAT32_BIAS = 127
_FLOAT32_MANTISSA_BITS = 23


def unit_of(weight_BK: Tensor) -> Tensor:
    """The power of two that brings the largest weight to [0.5, 1), and its inverse: float32 [2]."""
    if weight_BK.numel() == 0:
        return weight_BK.new_ones(2)
    exponent = torch.frexp(weight_BK.abs().amax().float()).exponent.clamp(-_MOST, _MOST)
    exponents = torch.stack([-exponent, exponent]).add_(_FLOAT32_BIAS)
    return exponents.bitwise_left_shift_(_FLOAT32_MANTISSA_BITS).view(torch.float32)
