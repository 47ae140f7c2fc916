"""Sizes, dtypes and precision that the kernels of the interaction are compiled for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import triton.language as tl

from foretaste.ops.neumf_loss.inputs import InteractionInputs

DTYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}
_NARROWEST = 16
"""The least width `tl.dot` multiplies."""


def constants(values: Iterable[int]) -> tuple[Any, ...]:
    """Each as a `tl.constexpr`."""
    return tuple(tl.constexpr(value) for value in values)


def tower_widths(inputs: InteractionInputs) -> list[int]:
    """Of the tower's layers, the first included."""
    return [inputs.item_tower_IH.shape[1], *(weight.shape[0] for weight, _ in inputs.layers)]


def padded(width: int) -> int:
    """The least width that kernels can hold ``width`` columns in: a power of two."""
    return max(_NARROWEST, 1 << (width - 1).bit_length())


def float32_precision() -> str:
    """As `torch.backends.cuda.matmul.fp32_precision` has it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
