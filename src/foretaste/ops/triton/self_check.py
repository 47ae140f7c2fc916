"""Check of a kernel on a small ragged case: value and gradients must be as near to float64's as
those of the plain code in the same dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors

Implementation = Literal["reference", "triton"]
Case = Callable[[Implementation, torch.dtype, torch.device], list[Tensor]]
"""Value and gradients of a case; float64 asks for the truth."""

_BUDGET = 1.5
_ROUNDINGS = 4.0
"""Of the result's size, allowed beside the plain code's own error, which may happen to be 0."""

_LARGEST = 8.0
"""The largest error of one value, in errors of all: rounding stays far below."""


def problem_of(case: Case, dtype: torch.dtype, device: torch.device) -> str | None:
    """The error of a kernel, in words, or None."""
    with torch.enable_grad():
        truth = case("reference", torch.float64, device)
        plain = case("reference", dtype, device)
        try:
            found = case("triton", dtype, device)
        except Exception as error:  # a compiler may fail in any way
            return f"it does not run ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    for kernel, rough, exact in zip(found, plain, truth, strict=True):
        size = _rms(exact)
        allowed = _BUDGET * _rms(rough.double() - exact)
        allowed += _ROUNDINGS * torch.finfo(dtype).eps * size
        difference = kernel.double() - exact
        off = max(_rms(difference), difference.abs().max().item() / _LARGEST)
        if not off <= allowed:  # NaN too
            return f"it is off by {off / size:.1e}, allowed are {allowed / size:.1e}"
    return None


def _rms(tensor: Tensor) -> float:
    return tensor.double().square().mean().sqrt().item()


def leaves(shapes: list[tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """The same values for every dtype, rounded to it."""
    generator = torch.Generator().manual_seed(1)
    return [
        (0.3 * torch.randn(shape, generator=generator)).to(device, dtype).requires_grad_()
        for shape in shapes
    ]


def ragged_histories(device: torch.device) -> HistoryTensors:
    """Histories of 13 users over 70 items, of ragged lengths, the first of them empty."""
    length_B = torch.arange(13, device=device) % 7
    offsets = torch.nn.functional.pad(length_B.cumsum(0), (1, 0))
    step_N = torch.cat([torch.arange(int(length), device=device) for length in length_B])
    row_N = torch.repeat_interleave(torch.arange(13, device=device), length_B)
    return HistoryTensors(offsets, (row_N + 9 * step_N).int() % 70, 70)
