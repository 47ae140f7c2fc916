"""Mult-VAE and Mult-DAE against the network written out plainly, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from foretaste.errors import SettingError
from foretaste.models.parts import SINGLE
from foretaste.models.vae.batches import HistoryBatch
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.models.vae.model import MultDAE, MultVAE
from foretaste.ops.histories import HistoryTensors
from tests.messages import raises
from tests.models.vae.plain import PlainVAE
from tests.ops.cases import random_histories

NUM_USERS, NUM_ITEMS = 14, 37
CONFIGS = {
    "vae": VAEConfig(hidden=(9,), latent=4),
    "vae, deeper": VAEConfig(
        hidden=(9, 6), latent=4, dropout=0.3, activation="relu", anneal_steps=40
    ),
    "vae, l2": VAEConfig(hidden=(9,), latent=4, l2=0.02, anneal_cap=0.7, anneal_steps=3),
    "vae, annealed by epochs": VAEConfig(hidden=(9,), latent=4, anneal_cap=0.9, anneal_epochs=0.7),
    "vae, every item sampled": VAEConfig(hidden=(9,), latent=4, sampled_softmax=NUM_ITEMS),
    "vae, no dropout": VAEConfig(hidden=(9,), latent=4, dropout=0.0, anneal_cap=0.0),
    "dae, deeper": DAEConfig(hidden=(9, 6), latent=4, l2=0.1, activation="relu"),
}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def model(request: pytest.FixtureRequest) -> MultVAE:
    """A model with weights far from their small start, so that every term matters."""
    kind = MultVAE if isinstance(request.param, VAEConfig) else MultDAE
    model = kind(request.param, NUM_USERS, NUM_ITEMS).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(values * 0.5)
    return model


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    return random_histories(rng, NUM_USERS, NUM_ITEMS)


def batch_of(histories: HistoryTensors, update: int = 2) -> HistoryBatch:
    return HistoryBatch(
        histories,
        update=torch.tensor(update),
        updates_per_epoch=4,
        dropout_key=torch.tensor(11 + update),
        noise_key=torch.tensor(-5 * update),
        first_row=torch.tensor(0),
        num_samples=len(histories),
        parts=SINGLE,
    )


@pytest.mark.parametrize(
    ("update", "logits_at_once", "training"),
    [(0, 1 << 21, True), (2, 3 * NUM_ITEMS + 1, True), (2_000, 1 << 21, False)],
)
def test_loss_and_gradients_equal_the_plain_network(
    model: MultVAE,
    histories: HistoryTensors,
    limit: Callable[..., None],
    update: int,
    logits_at_once: int,
    training: bool,
) -> None:
    limit(logits_bytes=8 * logits_at_once, narrow_bytes=0)
    plain, batch = PlainVAE(model), batch_of(histories, update)
    loss = model.train(training)(batch)
    expected = plain.loss(batch, training=training)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    for name, parameter in model.named_parameters():
        wanted = getattr(plain, name.replace(".", "_")).grad
        torch.testing.assert_close(
            parameter.grad, wanted, rtol=1e-6, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_the_kl_weight_grows_by_updates_to_its_cap() -> None:
    model = MultVAE(VAEConfig(anneal_cap=0.1, anneal_steps=15_000), 2, 3)
    assert model.schedule(0, 4) == {"beta": 0.0}
    assert model.schedule(750, 4) == {"beta": pytest.approx(0.05)}
    assert model.schedule(1500, 8) == {"beta": pytest.approx(0.1)}
    assert model.schedule(15_000, 4) == {"beta": 0.1}
    assert MultDAE(DAEConfig(), 2, 3).schedule(5000, 4) == {}


@pytest.mark.parametrize(
    ("settings", "num_users", "weight"),
    [
        ({}, 99_999, {"kl_weight": 0.005}),
        ({}, 100_000, {"beta": 0.1}),
        ({"kl_weight": 0.3}, 100_000, {"kl_weight": 0.3}),
        ({"kl_weight": 0.0}, 2, {"kl_weight": 0.0}),
        ({"anneal_cap": 0.2}, 2, {"beta": 0.2}),
        ({"anneal_steps": 50_000}, 2, {"beta": 0.1}),
        ({"anneal_epochs": 6250.0}, 2, {"beta": pytest.approx(0.08)}),
    ],
)
def test_the_kl_weight_follows_the_history_on_small_data_and_without_annealing(
    settings: dict[str, Any], num_users: int, weight: dict[str, float]
) -> None:
    config = VAEConfig(hidden=(2,), latent=2, **settings)
    assert MultVAE(config, num_users, 3).schedule(5000, 10) == weight


@pytest.mark.parametrize(
    "other", [{"anneal_cap": 2.0}, {"anneal_steps": 2}, {"anneal_epochs": 2.0}]
)
def test_the_kl_weight_is_not_annealed_and_given_at_once(other: dict[str, Any]) -> None:
    (named,) = other.items()
    with raises(SettingError, "kl_weight", 0.1, *named):
        VAEConfig(kl_weight=0.1, **other)


def test_sampled_softmax_is_for_training_only(histories: HistoryTensors) -> None:
    exact, sampled = (
        MultVAE(VAEConfig(hidden=(9,), latent=4, sampled_softmax=asked), NUM_USERS, NUM_ITEMS)
        for asked in (None, 1)
    )
    for model in (exact, sampled):
        model.reset_parameters(1)
    some = batch_of(histories[1:4])
    assert sampled.train()(some) != exact.train()(some)
    assert sampled.eval()(some) == exact.eval()(some)


def test_steps_use_their_memory_again_until_the_model_is_asked(histories: HistoryTensors) -> None:
    model = MultVAE(VAEConfig(hidden=(9,), latent=4), NUM_USERS, NUM_ITEMS).train()
    model.reset_parameters(1)
    places = set()
    for update in range(3):
        model.zero_grad(set_to_none=True)
        model(batch_of(histories, update)).backward()
        assert model.output.weight.grad is not None
        places.add(model.output.weight.grad.data_ptr())
    assert len(places) == 1
    assert model._memory._storages
    assert not model.eval()._memory._storages


def test_gradients_add_up_over_batches(histories: HistoryTensors) -> None:
    """Memory under a living gradient is not given to another tensor."""
    model = MultVAE(VAEConfig(hidden=(9,), latent=4), NUM_USERS, NUM_ITEMS).train()
    model.reset_parameters(1)
    parameters = list(model.parameters())
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    for update in range(3):
        found = torch.autograd.grad(model(batch_of(histories, update)), parameters)
        expected = [one + other for one, other in zip(expected, found, strict=True)]
    for update in range(3):
        model(batch_of(histories, update)).backward()
    torch.testing.assert_close([parameter.grad for parameter in parameters], expected)


def test_scores_are_the_plain_logits(model: MultVAE, histories: HistoryTensors) -> None:
    model.eval()
    state = model.fold_in(histories)
    scores_BI = model.score_catalogue(state)
    log_share_BI = scores_BI[1:].log_softmax(dim=1)
    seen_BI = histories.to_dense()[1:].double()
    likelihood = -(log_share_BI * seen_BI).sum() / (NUM_USERS - 1)
    rest = histories[1:]
    plain = PlainVAE(model)
    likelihood_alone = {"l2": 0.0, "kl_weight": 0.0}
    likelihood_alone |= dict.fromkeys(("anneal_cap", "anneal_steps", "anneal_epochs"))
    settings = {n: likelihood_alone.get(n, value) for n, value in vars(model.config).items()}
    plain.config = type(model.config)(**settings)
    expected = plain.loss(batch_of(rest, update=0), training=False)
    torch.testing.assert_close(likelihood, expected.detach(), rtol=1e-6, atol=1e-6)


def test_initial_weights_are_the_papers() -> None:
    model = MultVAE(VAEConfig(hidden=(60,), latent=20), 10, 500)
    model.reset_parameters(seed=1)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert 0.98 * bound < parameter.abs().max().item() <= bound
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        else:
            assert parameter.std().item() == pytest.approx(0.001, rel=0.4)
    values = [parameter.flatten()[:20] for parameter in model.parameters()]
    assert len({tuple((value / value.std()).tolist()) for value in values}) == len(values)


def test_an_encoder_without_layers_is_refused() -> None:
    with raises(SettingError, "hidden", ()):
        DAEConfig(hidden=())


def test_an_output_laid_out_for_few_gives_the_same_scores(histories: HistoryTensors) -> None:
    model = MultVAE(CONFIGS["vae"], NUM_USERS, NUM_ITEMS)  # type: ignore[arg-type]
    model.reset_parameters(0)
    model.eval()
    candidates = torch.arange(5).expand(NUM_USERS, -1)

    def scores() -> tuple[torch.Tensor, torch.Tensor]:
        state = model.fold_in(histories)
        return model.score_catalogue(state), model.score_candidates(state, candidates)

    before = scores()
    model.optimize_for_small_batches()
    assert model.output.weight.stride() == (1, NUM_ITEMS)
    for found, expected in zip(scores(), before, strict=True):
        torch.testing.assert_close(found, expected)
