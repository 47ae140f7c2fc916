"""Mult-VAE and Mult-DAE on several ranks: the random words of one process, and its gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.distributed.collectives import Ranks
from foretaste.models.vae.batches import HistoryBatch
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.models.vae.model import MultDAE, MultVAE
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.softmax_loss import chunked
from tests.ops.cases import random_histories
from tests.ranks import run_ranks

VAE = VAEConfig(hidden=(9,), latent=4, anneal_cap=0.7, anneal_steps=3)


@dataclass(frozen=True)
class Case:
    """A model and its data; every rank takes its share."""

    config: VAEConfig | DAEConfig = VAE
    num_users: int = 14
    num_items: int = 37
    batch_size: int = 5
    dtype: torch.dtype | None = None
    """Type of the matrix products."""
    loss_scale: float = 1.0

    def histories(self) -> HistoryTensors:
        """Histories; the first is empty."""
        return random_histories(np.random.default_rng(3), self.num_users, self.num_items)

    def model(self) -> MultVAE:
        """A model with weights far from their small start, so that every term matters."""
        kind = MultVAE if isinstance(self.config, VAEConfig) else MultDAE
        model = kind(self.config, self.num_users, self.num_items)
        generator = torch.Generator().manual_seed(3)
        for parameter in model.parameters():
            parameter.data.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        model.compute_dtype = self.dtype
        return model.train()

    def batches(self, model: MultVAE, ranks: Ranks) -> list[HistoryBatch]:
        """The batches of two epochs, with this rank's part of each."""
        batches: Any = model.make_batches(
            self.histories(), batch_size=self.batch_size, seed=5, parts=ranks
        )
        return [*batches.epoch(0), *batches.epoch(1)]


def steps(ranks: Ranks, case: Case) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """The loss of each batch and its gradients for all rows, from the same weights."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        # chunks of three users
        patch.setattr(
            chunked, "row_chunks", lambda n, *_: [slice(a, a + 3) for a in range(0, max(1, n), 3)]
        )
        model = case.model()
        for batch in case.batches(model, ranks):
            model.zero_grad(set_to_none=True)
            loss = model(batch)
            (loss * case.loss_scale).backward()
            total = loss.detach().clone()
            ranks.sum_(total)
            found.append((total, whole_gradients(ranks, model, case.loss_scale)))
    return found


def whole_gradients(ranks: Ranks, model: MultVAE, loss_scale: float) -> dict[str, Tensor]:
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }
    ranks.sum_(*gradients.values())
    return {name: gradient / loss_scale for name, gradient in gradients.items()}


def assert_steps_agree(case: Case, size: int, tolerance: float) -> None:
    (alone,) = run_ranks(steps, 1, case)
    for found in run_ranks(steps, size, case):
        assert len(found) == len(alone)
        for (loss, gradients), (true_loss, truth) in zip(found, alone, strict=True):
            torch.testing.assert_close(loss, true_loss, rtol=tolerance, atol=0.0)
            for name, gradient in gradients.items():
                error = (gradient - truth[name]).norm()
                assert error <= tolerance * truth[name].norm(), name


CONFIGS: dict[str, VAEConfig | DAEConfig] = {
    "vae": VAE,
    "vae, KL by history": VAEConfig(hidden=(9, 6), latent=3, dropout=0.3, kl_weight=0.3, l2=0.02),
    "dae, deeper": DAEConfig(hidden=(9, 6), latent=4, l2=0.1, activation="relu"),
}


@pytest.mark.parametrize(("name", "size"), list(zip(CONFIGS, (2, 3, 3), strict=True)))
def test_losses_and_gradients_of_the_ranks_equal_one_process(name: str, size: int) -> None:
    assert_steps_agree(Case(config=CONFIGS[name]), size, 1e-5)


@pytest.mark.parametrize(
    "sizes",
    [{"num_users": 3, "batch_size": 100}, {"num_users": 1, "batch_size": 1}, {"num_items": 1}],
)
def test_ranks_without_users_of_a_batch(sizes: dict[str, int]) -> None:
    assert_steps_agree(Case(**sizes), 3, 1e-5)


@pytest.mark.parametrize(
    ("dtype", "loss_scale", "tolerance"),
    [(torch.bfloat16, 1.0, 0.02), (torch.float16, 1024.0, 0.002)],
)
def test_half_precision(dtype: torch.dtype, loss_scale: float, tolerance: float) -> None:
    assert_steps_agree(Case(dtype=dtype, loss_scale=loss_scale), 2, tolerance)


@pytest.mark.parametrize("sizes", [{"num_items": 90}, {"num_users": 2, "batch_size": 1}])
def test_slices_sample_the_items_of_the_whole_batch(sizes: dict[str, int]) -> None:
    assert_steps_agree(Case(config=replace(VAE, sampled_softmax=5), **sizes), 3, 1e-5)
