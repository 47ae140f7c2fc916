"""Tests of the Triton kernels of the interaction, compiled on a GPU or interpreted on the CPU.

Not collected by its name: `test_triton` runs it through the interpreter in a process of its own,
`tests.gpu` on CUDA.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import triton.language as tl

from foretaste.ops.dropout import drop_threshold, keep_mask
from foretaste.ops.neumf_loss import reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout, layer_keys
from foretaste.ops.triton import functions
from foretaste.ops.triton import neumf_loss as triton_loss
from foretaste.ops.triton.segments import Pieces, sum_rows
from foretaste.ops.triton.support import kernel, launch
from tests.ops.cases import rms
from tests.ops.neumf_loss.test_chunked import (
    Shape,
    errors,
    gradients,
    make_inputs,
    make_samples,
    moved,
)

SHAPES = {
    "neumf": Shape(rows=29, candidates=5, items=17, factors=20, widths=(70, 40, 24)),
    "shuffled": Shape(rows=100, candidates=1, items=17, factors=8, widths=(32, 16, 8)),
    "full tile": Shape(rows=3, candidates=64, items=40, factors=16, widths=(24, 16)),
    "deep": Shape(rows=20, candidates=7, items=9, factors=3, widths=(130, 21, 19, 17)),
    "first layer only": Shape(rows=30, candidates=3, items=9, factors=5, widths=(70,)),
    "gmf": Shape(rows=30, candidates=5, items=9, factors=33, widths=(0,)),
    "mlp": Shape(rows=30, candidates=5, items=9, factors=0, widths=(24, 16)),
}
SEEDS = range(4)
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = [torch.float32, torch.float16]
if not IS_INTERPRETED:  # its products of bfloat16 are wrong
    DTYPES.append(torch.bfloat16)


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu" if IS_INTERPRETED else "cuda")


def placed(samples: Samples, device: torch.device) -> Samples:
    return Samples(
        samples.item_index_BK.to(device), samples.label_BK.to(device), samples.weight_BK.to(device)
    )


def make(
    shape: Shape, device: torch.device, seed: int = 1, *, scale: float = 1.0
) -> tuple[InteractionInputs, Samples]:
    generator = torch.Generator().manual_seed(seed)
    inputs = make_inputs(shape, generator, scale=scale, dtype=torch.float32)
    return moved(inputs, device), placed(make_samples(shape, generator), device)


def values(loss: torch.Tensor, inputs: InteractionInputs) -> list[torch.Tensor]:
    return [loss, *gradients(loss, inputs)]


def assert_agree(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Check agreement to float32 rounding, tensor by tensor."""
    for one, other in zip(found, expected, strict=True):
        if other.numel():
            assert rms([one.double() - other.double()]) <= 5e-6 * rms([other])


@kernel
def write_masks(
    masks: tl.tensor,
    key_1: tl.tensor,
    SAMPLES: tl.constexpr,
    FIRST: tl.constexpr,
    COLUMNS: tl.constexpr,
    THRESHOLD: tl.constexpr,
) -> None:
    key = functions.layer_key(tl.load(key_1).to(tl.uint64, bitcast=True), 2)
    mask_SC = functions.keep_mask(key, tl.arange(0, SAMPLES), FIRST, COLUMNS, THRESHOLD)
    place_SC = tl.arange(0, SAMPLES)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(masks + place_SC, mask_SC.to(tl.int8))


@pytest.mark.parametrize(
    ("key", "width", "first", "columns"),
    [(77, 1, 0, 16), (-(1 << 63), 130, 64, 64), ((1 << 63) - 1, 256, 0, 128)],
)
def test_masks_are_the_plain_ones_bit_for_bit(
    key: int, width: int, first: int, columns: int, device: torch.device
) -> None:
    rate, num_samples = 0.3, 16
    masks = torch.empty(num_samples, columns, dtype=torch.int8, device=device)
    launch(
        write_masks,
        1,
        masks,
        torch.tensor([key], device=device),
        SAMPLES=num_samples,
        FIRST=first,
        COLUMNS=columns,
        THRESHOLD=drop_threshold(rate),
    )
    stream = layer_keys(TowerDropout(rate, key), 3, device)[2]
    expected = keep_mask(stream, num_samples, width, rate, device)
    shown = min(columns, width - first)
    assert torch.equal(masks[:, :shown].bool(), expected[:, first : first + shown])


@pytest.mark.parametrize(
    ("name", "rate", "first_sample"),
    [
        *((name, 0.0, 0) for name in (("deep", "first layer only") if IS_INTERPRETED else SHAPES)),
        *((name, 0.2, 5 << 20) for name in SHAPES),
    ],
)
def test_loss_and_gradients_are_the_plain_ones(
    name: str, rate: float, first_sample: int, device: torch.device
) -> None:
    inputs, samples = make(SHAPES[name], device)
    exact, dropout = moved(inputs, torch.float64), TowerDropout(rate, 77, first_sample)
    truth = values(reference.loss(exact, samples, dropout), exact)
    assert_agree(values(triton_loss.loss(inputs, samples, dropout), inputs), truth)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "rate"), [("neumf", 0.5), ("shuffled", 0.0)])
def test_loss_and_gradients_are_as_accurate_as_plain_ones(
    name: str, rate: float, dtype: torch.dtype, device: torch.device
) -> None:
    """Errors of the loss and of each gradient against float64, over several draws."""
    kernel_errors, plain_errors = [], []
    for seed in SEEDS:
        inputs, samples = make(SHAPES[name], device, seed, scale=0.2)
        dropout = TowerDropout(rate, key=seed)
        exact, rough = moved(inputs, torch.float64), moved(inputs, dtype)
        truth = values(reference.loss(exact, samples, dropout), exact)
        found = triton_loss.loss(inputs, samples, dropout, compute_dtype=dtype)
        plain = reference.loss(rough, samples, dropout)
        kernel_errors.append(errors(values(found, inputs), truth))
        plain_errors.append(errors(values(plain, rough), truth))
    for kernel_error, plain_error, true in zip(
        zip(*kernel_errors, strict=True), zip(*plain_errors, strict=True), truth, strict=True
    ):
        assert rms(kernel_error) <= 1.5 * rms(plain_error) + 2e-7 * rms([true])


def test_small_weights_lose_nothing(device: torch.device) -> None:
    """Weights of 1 / samples, whose gradients of activations float16 could not hold."""
    inputs, samples = make(SHAPES["neumf"], device, scale=0.2)
    small = Samples(samples.item_index_BK, samples.label_BK, samples.weight_BK * 2.0**-23)
    expected = values(triton_loss.loss(inputs, samples, compute_dtype=torch.float16), inputs)
    found = values(triton_loss.loss(inputs, small, compute_dtype=torch.float16), inputs)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one * 2.0**23, other)


def test_labels_and_weights_broadcast(device: torch.device) -> None:
    inputs, samples = make(SHAPES["neumf"], device)
    labels, weights = samples.label_BK, samples.weight_BK
    for short in ((labels[:1], weights[:1, :1]), (labels[:, :1], weights[:, :1])):
        given = Samples(samples.item_index_BK, *short)
        expected = values(reference.loss(inputs, given), inputs)
        assert_agree(values(triton_loss.loss(inputs, given), inputs), expected)


def test_inputs_may_lie_anyhow(device: torch.device) -> None:
    inputs, samples = make(SHAPES["neumf"], device)
    index_KB = samples.item_index_BK.long().T.contiguous()
    scattered = InteractionInputs.of(
        tuple(
            tensor.detach().repeat_interleave(2, dim=-1)[..., ::2].requires_grad_()
            for tensor in inputs.tensors()
        )
    )
    expected = values(triton_loss.loss(inputs, samples), inputs)
    same = Samples(index_KB.T, samples.label_BK, samples.weight_BK)
    found = values(triton_loss.loss(scattered, same), scattered)
    assert_agree(found, expected)


def test_weightless_samples_leave_no_gradient(device: torch.device) -> None:
    inputs, samples = make(SHAPES["neumf"], device)
    some = samples.weight_BK.clone()
    some[3:] = 0.0
    few = Samples(samples.item_index_BK, samples.label_BK, some)
    expected = values(reference.loss(inputs, few), inputs)
    found = values(triton_loss.loss(inputs, few), inputs)
    assert_agree(found, expected)
    nothing = Samples(samples.item_index_BK, samples.label_BK, torch.zeros(1, 1, device=device))
    assert all(value.eq(0.0).all() for value in values(triton_loss.loss(inputs, nothing), inputs))


def test_large_logits_stay_finite(device: torch.device) -> None:
    inputs, samples = make(SHAPES["neumf"], device, scale=1000.0)
    found, expected = triton_loss.loss(inputs, samples), reference.loss(inputs, samples)
    torch.testing.assert_close(found, expected)
    assert all(value.isfinite().all() for value in values(found, inputs))


def test_frozen_inputs_get_no_gradient(device: torch.device) -> None:
    inputs, samples = make(SHAPES["neumf"], device)
    expected = values(triton_loss.loss(inputs, samples), inputs)
    frozen = InteractionInputs.of(tuple(tensor.detach() for tensor in inputs.tensors()))
    frozen.user_tower_BH.requires_grad_()
    (3.0 * triton_loss.loss(frozen, samples)).backward()
    torch.testing.assert_close(frozen.user_tower_BH.grad, 3.0 * expected[3].float())
    assert sum(tensor.grad is not None for tensor in frozen.tensors()) == 1


def test_half_precision_inputs_get_gradients_of_their_dtype(device: torch.device) -> None:
    """The scale of the loss is applied in float32, before anything is rounded to float16."""
    inputs, samples = make(SHAPES["neumf"], device, scale=0.2)
    inputs = moved(inputs, torch.float16)
    small = Samples(samples.item_index_BK, samples.label_BK, samples.weight_BK * 2.0**-23)
    expected = values(triton_loss.loss(inputs, samples), inputs)
    found = values(2.0**23 * triton_loss.loss(inputs, small), inputs)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_inputs_without_rows(device: torch.device) -> None:
    inputs, samples = make(Shape(rows=0), device)
    found = values(triton_loss.loss(inputs, samples), inputs)
    assert all(value.eq(0.0).all() for value in found)


def test_inputs_that_the_kernel_supports(device: torch.device) -> None:
    inputs, samples = make(SHAPES["full tile"], device)
    assert triton_loss.supports(inputs, samples, torch.float16)
    assert not triton_loss.supports(moved(inputs, torch.float64), samples, torch.float64)
    many = Shape(rows=3, candidates=65, items=40, factors=16, widths=(64, 16))
    assert not triton_loss.supports(*make(many, device), torch.float16)
    wide = Shape(rows=3, candidates=5, items=4, factors=16, widths=(1024, 16))
    assert not triton_loss.supports(*make(wide, device), torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_rows_by_index(dtype: torch.dtype, device: torch.device) -> None:
    """One index has many pieces, one has several, some have one, and some have none."""
    generator = torch.Generator().manual_seed(3)
    index_S = torch.cat([torch.full((1100,), 4), torch.randint(6, 9, (900,), generator=generator)])
    index_S = index_S[torch.randperm(2000, generator=generator)].int().to(device)
    rows_SW = torch.randn(2000, 37, generator=generator).to(device, dtype)
    weight_S = torch.rand(2000, generator=generator).to(device)
    scale_W = torch.rand(37, generator=generator).to(device)
    pieces = Pieces.of(index_S, 12)
    found: dict[str, Any] = {
        "plain": sum_rows(rows_SW, pieces, scale_W),
        "weighted": sum_rows(rows_SW, pieces, scale_W, weight_S=weight_S, samples_per_row=5),
    }
    row_S = torch.arange(2000, device=device)
    terms = {
        "plain": rows_SW.double(),
        "weighted": weight_S[:, None].double() * rows_SW[row_S // 5],
    }
    for name, sums_IW in found.items():
        expected = torch.zeros(12, 37, dtype=torch.float64, device=device)
        expected.index_add_(0, index_S, terms[name]).mul_(scale_W)
        assert sums_IW.dtype == torch.float32
        torch.testing.assert_close(sums_IW.double(), expected, atol=1e-4, rtol=1e-5)
    assert torch.equal(found["plain"], sum_rows(rows_SW, pieces, scale_W))
