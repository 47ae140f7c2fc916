"""Self-check of the Triton kernels: each is trusted once it was right on this GPU, in this process.

A kernel that compiles may still be wrong on an architecture that nobody tried. So before `auto`
takes one, it computes a small ragged case: value and gradients must be as near to float64's as
those of the plain code in the same dtype.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.ops.neumf_loss.inputs import InteractionInputs

Implementation = Literal["reference", "triton"]
_Case = Callable[[Implementation, torch.dtype, torch.device], list[Tensor]]
"""Value and gradients of a case; float64 asks for the truth."""

_BUDGET = 1.5
_ROUNDINGS = 4.0
"""Of the result's size, allowed beside the plain code's own error, which may happen to be 0."""

_LARGEST = 8.0
"""The largest error of one value, in errors of all: rounding stays far below."""

_verdicts: dict[tuple[str, torch.dtype, torch.device], bool] = {}


def is_trusted(operation: str, dtype: torch.dtype, device: torch.device) -> bool:
    """True if the kernel of ``operation`` is right in ``dtype`` on this GPU; warns once if not.

    The verdict is kept for as long as the process lives, which has one PyTorch and one Triton.
    """
    key = (operation, dtype, device)
    if key not in _verdicts:
        gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        problem = _problem(_CASES[operation], dtype, device)
        _verdicts[key] = problem is None
        if problem is not None:
            warnings.warn(
                f"the Triton kernel of {operation} in {dtype} is not used on {gpu}: {problem}; "
                "PyTorch's own operations serve, at less speed",
                RuntimeWarning,
                stacklevel=2,
            )
    return _verdicts[key]


def _problem(case: _Case, dtype: torch.dtype, device: torch.device) -> str | None:
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


def _neumf_loss(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    from foretaste.ops import neumf_loss
    from foretaste.ops.neumf_loss.inputs import Samples, TowerDropout

    inputs, item_index_BK = _neumf_inputs(dtype, device)
    label_K = (torch.arange(5, device=device) == 0).float()[None]
    samples = Samples(item_index_BK, label_K, torch.full((1, 1), 1.0 / 145, device=device))
    dropout = TowerDropout(0.3, key=7)
    value = neumf_loss.loss(
        inputs, samples, dropout, compute_dtype=dtype, implementation=implementation
    )
    return [value.detach(), *torch.autograd.grad(value, inputs.tensors())]


def _neumf_logits(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    from foretaste.ops import neumf_loss

    inputs, item_index_BK = _neumf_inputs(dtype, device)
    logits_BK = neumf_loss.logits(
        inputs, item_index_BK, compute_dtype=dtype, implementation=implementation
    )
    return [logits_BK.detach()]


def _softmax_loss(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    from foretaste.ops import softmax_loss

    leaf_dtype = torch.promote_types(dtype, torch.float32)
    leaves = _leaves([(13, 24), (70, 24), (70,)], leaf_dtype, device)
    # the reference computes in the dtype of its inputs
    layer = [leaf.to(dtype) for leaf in leaves] if implementation == "reference" else leaves
    hidden_BD, weight_ID, bias_I = layer
    value = softmax_loss.loss(
        hidden_BD,
        weight_ID,
        bias_I,
        _histories(device),
        scale=1.0 / 13,
        compute_dtype=dtype,
        implementation=implementation,
    )
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def _embedding_bag(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    from foretaste.ops import embedding_bag

    (table_IH,) = _leaves([(70, 24)], dtype, device)
    encoded_BH = embedding_bag.encode(
        table_IH, _histories(device), dropout=0.5, key=3, implementation=implementation
    )
    return [encoded_BH.detach(), *torch.autograd.grad(encoded_BH.square().sum(), [table_IH])]


_CASES: dict[str, _Case] = {
    "neumf_loss": _neumf_loss,
    "neumf_logits": _neumf_logits,
    "softmax_loss": _softmax_loss,
    "embedding_bag": _embedding_bag,
}


def _neumf_inputs(dtype: torch.dtype, device: torch.device) -> tuple[InteractionInputs, Tensor]:
    """29 rows with five candidates each, of 17 items."""
    from foretaste.ops.neumf_loss.inputs import InteractionInputs

    tables: list[tuple[int, ...]] = [(29, 20), (17, 20), (29, 70), (17, 70)]
    layers: list[tuple[int, ...]] = [(20,), (24,), (1,), (40, 70), (40,), (24, 40), (24,)]
    leaves = _leaves([*tables, *layers], torch.promote_types(dtype, torch.float32), device)
    number = torch.arange(29 * 5, device=device)
    item_index_BK = ((number * number + number) % 17).view(29, 5).int()
    return InteractionInputs.of(tuple(leaves)), item_index_BK


def _leaves(
    shapes: list[tuple[int, ...]], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """The same values for every dtype, rounded to it."""
    generator = torch.Generator().manual_seed(1)
    return [
        (0.3 * torch.randn(shape, generator=generator)).to(device, dtype).requires_grad_()
        for shape in shapes
    ]


def _histories(device: torch.device) -> HistoryTensors:
    """Histories of 13 users over 70 items, of ragged lengths, the first of them empty."""
    length_B = torch.arange(13, device=device) % 7
    offsets = torch.nn.functional.pad(length_B.cumsum(0), (1, 0))
    step_N = torch.cat([torch.arange(int(length), device=device) for length in length_B])
    row_N = torch.repeat_interleave(torch.arange(13, device=device), length_B)
    return HistoryTensors(offsets, (row_N + 9 * step_N).int() % 70, 70)
