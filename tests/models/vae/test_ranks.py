"""Mult-VAE and Mult-DAE on several ranks: the random words of one process, and its gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.models.config import Sharing
from foretaste.models.share import Share
from foretaste.models.vae.batches import HistoryBatch
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.models.vae.model import MultDAE, MultVAE
from foretaste.ops.dropout import keep_entries
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import from_row
from foretaste.ops.ranks import Ranks
from foretaste.ops.softmax_loss import chunked
from foretaste.training.trainer import make_step
from tests.ops.cases import part_of_items, random_histories
from tests.ranks import run_ranks
from tests.training.plans import make_plan

SIZES = [2, 3]
PARALLEL: list[Sharing] = ["data", "items"]


VAE = VAEConfig(hidden=(9,), latent=4, anneal_cap=0.7, anneal_steps=3)


@dataclass(frozen=True)
class Case:
    """A model and its data, of which every rank takes its share."""

    config: VAEConfig | DAEConfig = VAE
    num_users: int = 14
    num_items: int = 37
    batch_size: int = 5
    dtype: torch.dtype | None = None
    """Of the products."""
    loss_scale: float = 1.0

    def histories(self) -> HistoryTensors:
        """Histories of which the first is empty."""
        return random_histories(np.random.default_rng(3), self.num_users, self.num_items)

    def share(self, ranks: Ranks, parallel: Sharing) -> Share:
        sizes = self.num_users, self.num_items
        whole = Share.whole(*sizes, ranks)
        return Share.of_items(*sizes, ranks) if parallel == "items" else whole

    def model(self, share: Share) -> MultVAE:
        """A model with weights far from their small start, so that every term matters."""
        kind = MultVAE if isinstance(self.config, VAEConfig) else MultDAE
        model = kind(self.config, self.num_users, self.num_items, share=share)
        generator = torch.Generator().manual_seed(3)
        for name, parameter in model.named_parameters():
            rows = model.rows_of(name) or range(len(parameter))
            num_rows = self.num_items if name in model.item_rows else len(parameter)
            values = torch.randn(num_rows, *parameter.shape[1:], generator=generator)
            parameter.data.copy_(0.5 * values[rows.start : rows.stop])
        model.compute_dtype = self.dtype
        return model.train()

    def batches(self, model: MultVAE) -> list[HistoryBatch]:
        """Two epochs of them, with this rank's part of each."""
        histories = own_columns(self.histories(), model.share.items)
        batches = model.make_batches(histories, batch_size=self.batch_size, seed=5)
        return [*batches.epoch(0), *batches.epoch(1)]


def own_columns(histories: HistoryTensors, items: range) -> HistoryTensors:
    """The histories of some items as a rank reads them: their place in the whole is not known."""
    return replace(part_of_items(histories, items), place_B2=None)


def steps(ranks: Ranks, case: Case, parallel: Sharing) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """The loss of each batch and its gradients, of all rows, from the same weights."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        # chunks of three users
        patch.setattr(
            chunked, "_chunks", lambda n, *_: [slice(a, a + 3) for a in range(0, max(1, n), 3)]
        )
        model = case.model(case.share(ranks, parallel))
        for batch in case.batches(model):
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
    if model.summed_parameters():
        ranks.sum_(*gradients.values())
    for name in model.item_rows if model.share.shards_items else ():
        gradients[name] = torch.cat(ranks.gathered(gradients[name]))
    return {name: gradient / loss_scale for name, gradient in gradients.items()}


def assert_steps_agree(case: Case, parallel: Sharing, size: int, tolerance: float) -> None:
    (alone,) = run_ranks(steps, 1, case, parallel)
    for found in run_ranks(steps, size, case, parallel):
        assert len(found) == len(alone)
        for (loss, gradients), (true_loss, truth) in zip(found, alone, strict=True):
            torch.testing.assert_close(loss, true_loss, rtol=tolerance, atol=0.0)
            for name, gradient in gradients.items():
                error = (gradient - truth[name]).norm()
                assert error <= tolerance * truth[name].norm(), name


CONFIGS: dict[str, VAEConfig | DAEConfig] = {
    "vae": VAE,
    "vae, deeper": VAEConfig(hidden=(9, 6), latent=4, dropout=0.3, activation="relu", l2=0.02),
    "vae, KL by history": VAEConfig(hidden=(9,), latent=4, kl_weight=0.3),
    "vae, no dropout": VAEConfig(hidden=(9,), latent=3, dropout=0.0, anneal_cap=0.0),
    "dae": DAEConfig(hidden=(9,), latent=4),
    "dae, deeper": DAEConfig(hidden=(9, 6), latent=4, l2=0.1, activation="relu"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("parallel", PARALLEL)
@pytest.mark.parametrize("name", CONFIGS)
def test_losses_and_gradients_of_the_ranks_are_those_of_one(
    name: str, parallel: Sharing, size: int
) -> None:
    assert_steps_agree(Case(config=CONFIGS[name]), parallel, size, 1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("parallel", PARALLEL)
@pytest.mark.parametrize(
    "sizes",
    [
        {"num_users": 3, "batch_size": 100},
        {"num_users": 2, "batch_size": 1},
        {"num_users": 1, "batch_size": 1},
        {"num_items": 4},
        {"num_items": 2},
        {"num_items": 1},
    ],
    ids=str,
)
def test_ranks_without_users_of_a_batch_and_without_items(
    sizes: dict[str, int], parallel: Sharing, size: int
) -> None:
    for config in (VAE, CONFIGS["dae, deeper"]):
        assert_steps_agree(Case(config=config, **sizes), parallel, size, 1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("parallel", PARALLEL)
@pytest.mark.parametrize(
    ("dtype", "loss_scale", "tolerance"),
    [(torch.bfloat16, 1.0, 0.02), (torch.float16, 1024.0, 0.002)],
)
@pytest.mark.parametrize("num_items", [37, 2])
def test_half_precision(
    dtype: torch.dtype,
    loss_scale: float,
    tolerance: float,
    num_items: int,
    parallel: Sharing,
    size: int,
) -> None:
    case = Case(dtype=dtype, loss_scale=loss_scale, num_items=num_items)
    assert_steps_agree(case, parallel, size, tolerance)


@pytest.mark.parametrize("size", SIZES)
def test_slices_sample_the_items_of_the_whole_batch(size: int) -> None:
    config = replace(VAE, sampled_softmax=5)
    assert_steps_agree(Case(config=config, num_items=90), "data", size, 1e-5)
    assert_steps_agree(Case(config=config, num_users=2, batch_size=1), "data", size, 1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_items", [37, 2])
def test_every_item_sampled_by_its_rank_is_exact(size: int, num_items: int) -> None:
    config = replace(VAE, sampled_softmax=3 * num_items)
    assert_steps_agree(Case(config=config, num_items=num_items), "items", size, 1e-5)


def test_samples_of_the_ranks_stand_for_all_items() -> None:
    """Each draws its part of them from its own items."""
    case = Case(num_items=90)
    (exact,) = run_ranks(steps, 1, case, "items")
    found = run_ranks(steps, 3, replace(case, config=replace(VAE, sampled_softmax=30)), "items")[0]
    errors = [
        loss / true_loss - 1.0 for (loss, _), (true_loss, _) in zip(found, exact, strict=True)
    ]
    assert 0.0 < max(map(abs, errors)) < 0.1
    assert abs(sum(errors) / len(errors)) < 0.02


def words(ranks: Ranks, case: Case, parallel: Sharing) -> list[tuple[Any, Tensor]]:
    """Of each batch: its rows' items, kept or dropped, and the noise of its rows."""
    found = []
    model = case.model(case.share(ranks, parallel))
    for batch in case.batches(model):
        histories, first_row = batch.histories, int(batch.first_row)
        key = from_row(batch.dropout_key, batch.first_row)
        kept_N = keep_entries(histories, 0.5, key).tolist()
        row_N = (histories.row_index() + first_row).tolist()
        item_N = (histories.item_index + model.share.items.start).tolist()
        noise_BL, _ = model._latent(torch.zeros(len(histories), 8), batch)
        found.append((dict(zip(zip(row_N, item_N, strict=True), kept_N, strict=True)), noise_BL))
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", [Case(), Case(num_users=4, batch_size=3), Case(num_items=2)])
def test_users_dropout_and_noise_are_those_of_one(case: Case, size: int) -> None:
    (alone,) = run_ranks(words, 1, case, "data")
    for parallel in PARALLEL:
        ranks = run_ranks(words, size, case, parallel)
        for (kept, noise_BL), *parts in zip(alone, *ranks, strict=True):
            assert {k: v for part, _ in parts for k, v in part.items()} == kept
            assert sum(len(part) for part, _ in parts) == len(kept)
            noises = [noise for _, noise in parts]
            for whole in [torch.cat(noises)] if parallel == "data" else noises:
                assert torch.equal(whole, noise_BL)


def compiled(ranks: Ranks, case: Case) -> str:
    model = case.model(case.share(ranks, "items"))
    batches = model.make_batches(
        own_columns(case.histories(), model.share.items), batch_size=5, seed=5
    )
    with pytest.raises(UnsupportedError) as caught:
        make_step(model, batches, make_plan(compile=True))
    return str(caught.value)


def test_a_compiled_loss_is_refused_where_items_are_shared_out() -> None:
    assert all("--parallel data" in message for message in run_ranks(compiled, 2, Case()))
