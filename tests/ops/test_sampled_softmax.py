"""The sampled likelihood: exact with every item, close with many, and unbiased as documented."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.softmax_loss import reference
from foretaste.ops.softmax_loss.sampled import sample_others, sampled_loss
from tests.ops.allocations import LargestAllocation
from tests.ops.cases import histories_of, random_histories

NUM_USERS, NUM_ITEMS = 12, 400


@pytest.fixture
def targets(rng: np.random.Generator) -> HistoryTensors:
    """Short histories: most items have no user."""
    rows = [rng.choice(NUM_ITEMS, size, replace=False).tolist() for size in range(NUM_USERS)]
    return histories_of(rows, NUM_ITEMS)


@pytest.fixture
def layer(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden rows, output weight and output bias."""
    sizes = [(NUM_USERS, 6), (NUM_ITEMS, 6), (NUM_ITEMS,)]
    values = (torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    hidden_BD, weight_ID, bias_I = (value.mul(0.5).requires_grad_() for value in values)
    return hidden_BD, weight_ID, bias_I


def relative_error(found: Tensor, truth: Tensor) -> float:
    return ((found - truth).norm() / truth.norm()).item()


def test_with_every_item_it_is_exact(
    targets: HistoryTensors, layer: tuple[Tensor, Tensor, Tensor]
) -> None:
    expected = 3.0 * reference.loss(*layer, targets)
    found = sampled_loss(*layer, targets, num_samples=10 * NUM_ITEMS, key=5, scale=3.0)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, layer), torch.autograd.grad(expected, layer)
    )


def test_a_bias_that_does_not_learn_gets_no_gradient(
    targets: HistoryTensors, layer: tuple[Tensor, Tensor, Tensor]
) -> None:
    hidden_BD, weight_ID, bias_I = layer
    learned = hidden_BD, weight_ID
    expected = torch.autograd.grad(reference.loss(*layer, targets), learned)
    found = sampled_loss(*learned, bias_I.detach(), targets, num_samples=NUM_ITEMS, key=5)
    torch.testing.assert_close(torch.autograd.grad(found, learned), expected)


def test_more_samples_bring_smaller_errors(
    targets: HistoryTensors, layer: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Errors of the loss and each gradient fall, for single draws and for their mean."""
    truth = reference.loss(*layer, targets)
    true_values = [truth, *torch.autograd.grad(truth, layer)]
    single_errors, mean_errors = [], []
    for num_samples in (10, 40, 160):
        draws = []
        for key in range(25):
            found = sampled_loss(*layer, targets, num_samples=num_samples, key=key)
            draws.append([found.detach(), *torch.autograd.grad(found, layer)])
        single_errors.append(
            np.mean([list(map(relative_error, draw, true_values)) for draw in draws], axis=0)
        )
        means = [torch.stack(values).mean(0) for values in zip(*draws, strict=True)]
        mean_errors.append(np.array(list(map(relative_error, means, true_values))))
    assert all((few > 1.3 * many).all() for few, many in pairwise(single_errors))
    assert all((few > many).all() for few, many in pairwise(mean_errors))
    assert single_errors[-1][0] < 0.01
    assert mean_errors[-1].max() < 0.15


@pytest.mark.parametrize("num_samples", [1, 50, 10_000])
def test_samples_are_distinct_and_nobodys(num_samples: int, rng: np.random.Generator) -> None:
    owned_U = torch.tensor(sorted(rng.choice(200, 90, replace=False)))
    item_S, correction_S = sample_others(owned_U, 200, num_samples, key=3)
    assert len(item_S) == min(num_samples, 110)
    assert item_S.diff().gt(0).all()
    assert item_S.min() >= 0
    assert item_S.max() < 200
    assert not torch.isin(item_S, owned_U).any()
    assert correction_S.exp().sum().item() == pytest.approx(110)


def test_every_item_that_nobody_has_is_drawn_as_often_as_its_weight_says() -> None:
    owned_U = torch.tensor([0, 3, 4, 9])
    counts = torch.zeros(13)
    for key in range(4000):
        item_S, correction_S = sample_others(owned_U, 13, 4, key)
        counts[item_S] += correction_S.exp()
    assert counts[owned_U].eq(0).all()
    others = counts[counts > 0]
    assert len(others) == 9
    assert (others / 4000 - 1.0).abs().max() < 0.1


def test_memory_does_not_grow_with_users_times_items(
    rng: np.random.Generator, generator: torch.Generator
) -> None:
    """Nothing is larger than the output weights themselves."""
    num_users, num_items, width = 60, 5000, 4
    targets = random_histories(rng, num_users, num_items, share=0.001)[: num_users - 1]
    sizes = [(num_users - 1, width), (num_items, width), (num_items,)]
    layer = [torch.randn(size, generator=generator).requires_grad_() for size in sizes]
    with LargestAllocation() as largest:
        sampled_loss(*layer, targets, num_samples=50, key=1).backward()
    assert largest.num_bytes <= 4 * num_items * width
