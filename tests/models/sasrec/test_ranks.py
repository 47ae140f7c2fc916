"""SASRec on several ranks: the masks of one process, and its gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from foretaste.distributed.collectives import Ranks
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.models.sasrec.model import SASRec
from tests.models.sasrec.sequences import NUM_ITEMS, in_order, random_sequences
from tests.ranks import run_ranks

CONFIG = SASRecConfig(factors=8, max_length=7, dropout=0.4)

Steps = list[tuple[Tensor, list[Tensor]]]


def steps(
    ranks: Ranks, config: SASRecConfig, num_users: int, batch_size: int, num_threads: int = 1
) -> Steps:
    """The loss of each batch of two epochs and its gradients, of the same weights."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    model = SASRec(config, num_users, NUM_ITEMS)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    model.train()
    histories = in_order(random_sequences(num_users))
    batches = model.make_batches(histories, batch_size=batch_size, seed=5, parts=ranks)
    found = []
    for batch in [*batches.epoch(0), *batches.epoch(1)]:
        model.zero_grad()
        loss = model(batch)
        loss.backward()
        total = loss.detach().clone()
        gradients = [parameter.grad for parameter in model.parameters()]
        own = [torch.zeros_like(total) if one is None else one for one in gradients]
        ranks.sum_(total, *own)
        found.append((total, own))
    torch.set_num_threads(before)
    return found


def assert_equal(found: Steps, expected: Steps) -> None:
    assert len(found) == len(expected)
    for (loss, gradients), (true_loss, truth) in zip(found, expected, strict=True):
        torch.testing.assert_close(loss, true_loss, rtol=1e-5, atol=0.0)
        for gradient, true in zip(gradients, truth, strict=True):
            assert (gradient - true).norm() <= 1e-5 * true.norm()


@pytest.mark.parametrize("sampled_softmax", [None, 5])
@pytest.mark.parametrize(("size", "num_users", "batch_size"), [(2, 24, 12), (3, 24, 30), (3, 4, 7)])
def test_losses_and_gradients_of_the_ranks_equal_one_process(
    size: int, num_users: int, batch_size: int, sampled_softmax: int | None
) -> None:
    """Some ranks have no row of a batch."""
    case = replace(CONFIG, sampled_softmax=sampled_softmax), num_users, batch_size
    (alone,) = run_ranks(steps, 1, *case)
    for found in run_ranks(steps, size, *case):
        assert_equal(found, alone)


def test_two_threads_do_what_one_does() -> None:
    one, two = (steps(Ranks(), CONFIG, 60, 200, num_threads) for num_threads in (1, 2))
    assert_equal(two, one)
