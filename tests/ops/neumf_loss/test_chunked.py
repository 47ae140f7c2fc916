"""The interaction in chunks against a plain computation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss import chunked, reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout
from tests.ops.cases import rms

SEEDS = range(12)


@dataclass(frozen=True)
class Shape:
    """Sizes of one case; ``widths`` are the tower's, the first layer included."""

    rows: int = 11
    candidates: int = 5
    items: int = 17
    factors: int = 4
    widths: tuple[int, ...] = (6, 5, 3)


SHAPES = {
    "neumf": Shape(),
    "one candidate": Shape(candidates=1, rows=23),
    "one row": Shape(rows=1),
    "first layer only": Shape(widths=(9,)),
    "odd widths": Shape(factors=3, widths=(13, 11, 9, 1)),
    "gmf": Shape(widths=(0,)),
    "mlp": Shape(factors=0),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request: pytest.FixtureRequest) -> Shape:
    return request.param


def make_inputs(
    shape: Shape, generator: torch.Generator, *, scale: float = 1.0, dtype: torch.dtype
) -> InteractionInputs:
    def values(*size: int) -> Tensor:
        return (torch.randn(size, generator=generator) * scale).to(dtype).requires_grad_()

    hidden = []
    for width, next_width in itertools.pairwise(shape.widths):
        hidden += [values(next_width, width), values(next_width)]
    return InteractionInputs(
        user_product_BF=values(shape.rows, shape.factors),
        item_product_IF=values(shape.items, shape.factors),
        user_tower_BH=values(shape.rows, shape.widths[0]),
        item_tower_IH=values(shape.items, shape.widths[0]),
        output_product_F=values(shape.factors),
        output_tower_D=values(shape.widths[-1]),
        output_bias_1=values(1),
        hidden=tuple(hidden),
    )


def make_samples(shape: Shape, generator: torch.Generator) -> Samples:
    size = (shape.rows, shape.candidates)
    return Samples(
        item_index_BK=torch.randint(shape.items, size, generator=generator, dtype=torch.int32),
        label_BK=torch.randint(2, size, generator=generator).float(),
        weight_BK=torch.rand(size, generator=generator),
    )


def moved(inputs: InteractionInputs, where: torch.device | torch.dtype) -> InteractionInputs:
    tensors = (tensor.detach().to(where).requires_grad_() for tensor in inputs.tensors())
    return InteractionInputs.of(tuple(tensors))


def gradients(loss: Tensor, inputs: InteractionInputs) -> list[Tensor]:
    found = torch.autograd.grad(loss, inputs.tensors(), materialize_grads=True)
    return [gradient.double() for gradient in found]


@pytest.fixture(params=[7, 1 << 14])
def chunk(request: pytest.FixtureRequest, limit: Callable[..., None]) -> int:
    """Samples at once: one row, sizes that do not divide the rows, and everything. Blocks have at
    least two chunks, so that a small case has several.
    """
    size = int(request.param)
    limit(samples=size, pairs=size, product_samples=size)
    limit(block_samples=2 * size, block_samples_per_item=1)
    return size


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(("rate", "first_sample"), [(0.0, 0), (0.2, 3 << 30)])
def test_loss_and_gradients_are_the_plain_ones(
    shape: Shape,
    rate: float,
    first_sample: int,
    generator: torch.Generator,
    device: torch.device,
) -> None:
    inputs = moved(make_inputs(shape, generator, dtype=torch.float64), device)
    samples = make_samples(shape, generator)
    samples = Samples(
        samples.item_index_BK.to(device), samples.label_BK.to(device), samples.weight_BK.to(device)
    )
    dropout = TowerDropout(rate, 77, first_sample)
    expected = reference.loss(inputs, samples, dropout)
    found = neumf_loss.loss(inputs, samples, dropout)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))


def test_labels_and_weights_broadcast(generator: torch.Generator) -> None:
    inputs = make_inputs(Shape(), generator, dtype=torch.float64)
    samples = make_samples(Shape(), generator)
    label_K, weight = samples.label_BK[:1], samples.weight_BK[:1, :1]
    short = Samples(samples.item_index_BK, label_K, weight)
    size = samples.item_index_BK.shape
    whole = Samples(samples.item_index_BK, label_K.expand(size), weight.expand(size))
    torch.testing.assert_close(neumf_loss.loss(inputs, short), reference.loss(inputs, whole))


def test_weightless_samples_leave_no_gradient(generator: torch.Generator) -> None:
    inputs = make_inputs(Shape(), generator, dtype=torch.float64)
    samples = make_samples(Shape(), generator)
    nothing = Samples(samples.item_index_BK, samples.label_BK, torch.zeros(1, 1))
    loss = neumf_loss.loss(inputs, nothing)
    assert loss.item() == 0.0
    assert all(gradient.eq(0.0).all() for gradient in gradients(loss, inputs))


def test_large_logits_stay_finite(generator: torch.Generator) -> None:
    inputs = make_inputs(Shape(), generator, scale=1000.0, dtype=torch.float32)
    samples = make_samples(Shape(), generator)
    found, expected = neumf_loss.loss(inputs, samples), reference.loss(inputs, samples)
    assert found.isfinite()
    torch.testing.assert_close(found, expected)
    assert all(gradient.isfinite().all() for gradient in gradients(found, inputs))


def test_frozen_inputs_get_no_gradient(generator: torch.Generator) -> None:
    """Folding in fits user rows only, so items and weights get no gradient."""
    inputs = make_inputs(Shape(), generator, dtype=torch.float64)
    samples = make_samples(Shape(), generator)
    expected = gradients(reference.loss(inputs, samples), inputs)
    frozen = InteractionInputs.of(tuple(tensor.detach() for tensor in inputs.tensors()))
    frozen.user_product_BF.requires_grad_()
    frozen.user_tower_BH.requires_grad_()
    neumf_loss.loss(frozen, samples).backward()
    torch.testing.assert_close(frozen.user_product_BF.grad, expected[0])
    torch.testing.assert_close(frozen.user_tower_BH.grad, expected[2])
    assert [tensor.grad is None for tensor in frozen.tensors()] == [
        not tensor.requires_grad for tensor in frozen.tensors()
    ]


@pytest.mark.usefixtures("chunk")
def test_logits_are_the_plain_ones(shape: Shape, generator: torch.Generator) -> None:
    inputs = make_inputs(shape, generator, dtype=torch.float64)
    item_index_BK = make_samples(shape, generator).item_index_BK
    catalogue_BI = torch.arange(shape.items).expand(shape.rows, -1)
    expected = reference.logits(inputs, item_index_BK)
    torch.testing.assert_close(chunked.logits(inputs, item_index_BK), expected.detach())
    expected = reference.logits(inputs, catalogue_BI)
    torch.testing.assert_close(chunked.catalogue_logits(inputs), expected.detach())


def test_inputs_without_rows_or_candidates(generator: torch.Generator) -> None:
    nobody = make_inputs(Shape(rows=0), generator, dtype=torch.float32)
    no_samples = make_samples(Shape(rows=0), generator)
    assert neumf_loss.loss(nobody, no_samples).item() == 0.0
    assert chunked.logits(nobody, no_samples.item_index_BK).shape == (0, 5)
    assert chunked.catalogue_logits(nobody).shape == (0, 17)
    inputs = make_inputs(Shape(), generator, dtype=torch.float32)
    assert chunked.logits(inputs, torch.zeros(11, 0, dtype=torch.int64)).shape == (11, 0)


@pytest.mark.parametrize(("widths", "rate"), [((96,), 0.0), ((96, 64, 33), 0.5)])
def test_bf16_is_as_accurate_as_plain_bf16(
    limit: Callable[..., None], widths: tuple[int, ...], rate: float
) -> None:
    """Errors of the loss and of each gradient, over several draws, against float64."""
    limit(samples=150)
    shape = Shape(rows=64, candidates=5, items=40, factors=32, widths=widths)
    kernel_errors, plain_errors = [], []
    for seed in SEEDS:
        generator = torch.Generator().manual_seed(seed)
        inputs = make_inputs(shape, generator, scale=0.2, dtype=torch.float32)
        samples, dropout = make_samples(shape, generator), TowerDropout(rate, key=seed)
        exact, rough = moved(inputs, torch.float64), moved(inputs, torch.bfloat16)
        truth = reference.loss(exact, samples, dropout)
        kernel = neumf_loss.loss(inputs, samples, dropout, compute_dtype=torch.bfloat16)
        plain = reference.loss(rough, samples, dropout)
        true_values = [truth, *gradients(truth, exact)]
        kernel_errors.append(errors([kernel, *gradients(kernel, inputs)], true_values))
        plain_errors.append(errors([plain, *gradients(plain, rough)], true_values))
    for kernel_error, plain_error in zip(
        zip(*kernel_errors, strict=True), zip(*plain_errors, strict=True), strict=True
    ):
        assert rms(kernel_error) <= 1.5 * rms(plain_error)


def errors(found: list[Tensor], truth: list[Tensor]) -> list[Tensor]:
    return [(one.double() - other).detach() for one, other in zip(found, truth, strict=True)]
