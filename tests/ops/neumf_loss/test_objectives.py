"""Objectives: their values by hand, and their slopes against autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.errors import UnsupportedError
from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss import reference
from foretaste.ops.neumf_loss.inputs import BCE, Objective, Samples
from tests.messages import raises
from tests.ops.neumf_loss.test_chunked import Shape, gradients, make_inputs, make_samples

SOFTMAX = Objective("softmax")
LABEL = torch.tensor([[1.0, 0.0, 0.0, 0.0]])


def logits(generator: torch.Generator) -> Tensor:
    return torch.randn(6, 4, generator=generator, dtype=torch.float64)


def weights(kind: str) -> Tensor:
    if kind == "one for all":
        return torch.full((1, 1), 0.25)
    weight_BK = torch.rand(6, 4, generator=torch.Generator().manual_seed(2))
    weight_BK[1, 2] = weight_BK[3, 1:] = 0.0
    weight_BK[4] = 0.0
    return weight_BK


def test_softmax_is_the_cross_entropy_of_the_positive(generator: torch.Generator) -> None:
    logits_BK = logits(generator)
    expected = F.cross_entropy(logits_BK, torch.zeros(6, dtype=torch.int64), reduction="sum")
    torch.testing.assert_close(SOFTMAX.loss(logits_BK, LABEL, weights("one for all")), expected)


@pytest.mark.parametrize("objective", [BCE, SOFTMAX], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", ["one for all", "some zero"])
def test_slopes_are_the_gradient(
    objective: Objective, kind: str, generator: torch.Generator
) -> None:
    logits_BK, weight_BK = logits(generator).requires_grad_(), weights(kind)
    expected = objective.loss(logits_BK, LABEL, weight_BK)
    (wanted,) = torch.autograd.grad(expected, logits_BK)
    whole = (one.expand(6, 4) for one in (LABEL, weight_BK))
    found, slope_BK = objective.with_slopes(logits_BK.detach().clone(), *whole)
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(slope_BK, wanted)
    if kind == "some zero":
        assert slope_BK[1, 2] == 0.0
        assert slope_BK[3, 1:].eq(0.0).all()
        assert slope_BK[4].eq(0.0).all()


@pytest.mark.parametrize("objective", [BCE, SOFTMAX], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("shape", "dense_items"),
    [(Shape(), 0), (Shape(candidates=1), 0)]
    + [(Shape(widths=(0,), candidates=k), dense) for k, dense in ((1, 0), (5, 0), (5, 1000))],
    ids=str,
)
def test_chunks_have_the_plain_loss_and_gradients(
    objective: Objective,
    shape: Shape,
    dense_items: int,
    generator: torch.Generator,
    limit: Callable[..., None],
) -> None:
    limit(samples=15, block_samples=30, block_samples_per_item=1)
    limit(product_samples=30, dense_items_per_candidate=dense_items)
    inputs = make_inputs(shape, generator, dtype=torch.float64)
    made = make_samples(shape, generator)
    samples = Samples(made.item_index_BK, made.label_BK, made.weight_BK, objective)
    expected, found = reference.loss(inputs, samples), neumf_loss.loss(inputs, samples)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))


def test_the_triton_kernels_refuse_other_losses(generator: torch.Generator) -> None:
    inputs = make_inputs(Shape(), generator, dtype=torch.float32)
    made = make_samples(Shape(), generator)
    samples = Samples(made.item_index_BK, made.label_BK, made.weight_BK, SOFTMAX)
    with raises(UnsupportedError, "triton", "softmax", "--kernels chunked"):
        neumf_loss.loss(inputs, samples, implementation="triton")
