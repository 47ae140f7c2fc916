"""Checks of the kernels on small ragged cases: value and gradients must be as near to float64's as
the plain code's in the same dtype.

A kernel that compiles may still be wrong on an architecture that nobody tried, so each passes its
check before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.ops import embedding_bag, neumf_loss, softmax_loss
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.neumf_loss import reference as neumf_reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout
from foretaste.ops.precision_flags import EXACT, float32_products
from foretaste.ops.triton import support

_Side = Literal["reference", "triton"]
Case = Callable[[_Side, torch.dtype, torch.device], list[Tensor]]
"""Value and gradients of a case; float64 asks for the truth."""

_BUDGET = 1.5
_ROUNDINGS = 4.0
"""Roundings of the result's size allowed beside the plain code's own error, which may be 0."""

_TF32_ROUNDING = 2.0**-10
"""Relative rounding of tf32 products, which the kernel, the plain code or both may use."""

_LARGEST = 8.0
"""The largest error of one value, in errors of all: rounding stays far below."""


def verify_kernels(
    dtypes: Mapping[str, torch.dtype], device: torch.device, float32: str = EXACT
) -> None:
    """Raise UnsupportedError if a kernel is wrong on ``device``, or does not run there.

    ``dtypes`` has the dtype of each operation, by its name in `CASES`; ``float32`` is the precision
    of float32 products, ``ieee`` or ``tf32``.
    """
    if device.type == "cuda" and not support.can_run(device):
        raise UnsupportedError(
            "kernels is triton, which needs Triton and an NVIDIA GPU of compute capability 8.0 or "
            "newer; leave it out"
        )
    for operation, dtype in dtypes.items():
        if (problem := kernel_error(operation, dtype, device, float32)) is not None:
            gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
            raise UnsupportedError(
                f"kernels is triton, and on {gpu} the kernel of {operation} in {dtype} is not "
                f"right: {problem}; leave it out"
            )


@cache
def kernel_error(
    operation: str, dtype: torch.dtype, device: torch.device, float32: str = EXACT
) -> str | None:
    """Return the error of the kernel of an operation of `CASES`, in words, or None.

    The arguments are those of `verify_kernels`.
    """
    case = CASES[operation]
    rounding = (
        _TF32_ROUNDING if float32 != EXACT and dtype.itemsize == 4 else torch.finfo(dtype).eps
    )
    with torch.enable_grad(), float32_products(device, float32):
        truth = case("reference", torch.float64, device)
        plain = case("reference", dtype, device)
        try:
            found = case("triton", dtype, device)
        except Exception as error:  # a compiler may fail in any way
            return f"it does not run ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    for kernel, rough, exact in zip(found, plain, truth, strict=True):
        size = _rms(exact)
        allowed = _BUDGET * _rms(rough.double() - exact)
        allowed += _ROUNDINGS * rounding * size
        difference = kernel.double() - exact
        off = max(_rms(difference), difference.abs().max().item() / _LARGEST)
        if not off <= allowed:  # NaN too
            return f"it is off by {off / size:.1e}, allowed are {allowed / size:.1e}"
    return None


def _rms(tensor: Tensor) -> float:
    return tensor.double().square().mean().sqrt().item()


def _leaves(
    shapes: list[tuple[int, ...]], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Return the same values for every dtype, rounded to it."""
    generator = torch.Generator().manual_seed(1)
    return [
        (0.3 * torch.randn(shape, generator=generator)).to(device, dtype).requires_grad_()
        for shape in shapes
    ]


def _ragged_histories(device: torch.device) -> HistoryTensors:
    """Return histories of 13 users over 70 items, of ragged lengths, two of them empty."""
    length_B = torch.arange(13, device=device) % 7
    offsets = torch.nn.functional.pad(length_B.cumsum(0), (1, 0))
    step_N = torch.cat([torch.arange(int(length), device=device) for length in length_B])
    row_N = torch.repeat_interleave(torch.arange(13, device=device), length_B)
    return HistoryTensors(offsets, (row_N + 9 * step_N).int() % 70, 70)


def encoded(implementation: _Side, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    (table_IH,) = _leaves([(70, 24)], dtype, device)
    encoded_BH = embedding_bag.encode(
        table_IH, _ragged_histories(device), dropout=0.5, key=3, implementation=implementation
    )
    return [encoded_BH.detach(), *torch.autograd.grad(encoded_BH.square().sum(), [table_IH])]


def likelihood(implementation: _Side, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    sizes: list[tuple[int, ...]] = [(13, 24), (70, 24), (70,)]
    weights = _leaves(sizes, torch.promote_types(dtype, torch.float32), device)
    # the reference computes in the dtype of its inputs
    layer = [one.to(dtype) for one in weights] if implementation == "reference" else weights
    hidden_BD, weight_ID, bias_I = layer
    value = softmax_loss.loss(
        hidden_BD,
        weight_ID,
        bias_I,
        _ragged_histories(device),
        scale=1.0 / 13,
        compute_dtype=dtype,
        implementation=implementation,
    )
    return [value.detach(), *torch.autograd.grad(value, weights)]


def interaction(implementation: _Side, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return the loss and gradients of 29 rows with five candidates each, of 17 items."""
    tables: list[tuple[int, ...]] = [(29, 20), (17, 20), (29, 70), (17, 70)]
    layers: list[tuple[int, ...]] = [(20,), (24,), (1,), (40, 70), (40,), (24, 40), (24,)]
    weights = _leaves([*tables, *layers], torch.promote_types(dtype, torch.float32), device)
    number = torch.arange(29 * 5, device=device)
    item_index_BK = ((number * number + number) % 17).view(29, 5).int()
    label_K = (torch.arange(5, device=device) == 0).float()[None]
    samples = Samples(item_index_BK, label_K, torch.full((1, 1), 1.0 / 145, device=device))
    dropout = TowerDropout(0.3, key=7)
    if implementation == "reference":
        rounded = InteractionInputs.of(tuple(one.to(dtype) for one in weights))
        value = neumf_reference.loss(rounded, samples, dropout)
    else:
        inputs = InteractionInputs.of(tuple(weights))
        value = neumf_loss.loss(
            inputs, samples, dropout, compute_dtype=dtype, implementation="triton"
        )
    return [value.detach(), *torch.autograd.grad(value, weights)]


CASES: dict[str, Case] = {
    "embedding_bag": encoded,
    "neumf_loss": interaction,
    "softmax_loss": likelihood,
}
"""The checks, by the names of the operations that have a kernel."""
