"""Losses and scores of the NeuMF family beside the default ones, written out plainly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.errors import SettingError
from foretaste.models.neumf.batches import InteractionBatch
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.histories import HistoryTensors
from tests.messages import Named, raises
from tests.ops.cases import histories_of, random_histories

NUM_USERS, NUM_ITEMS = 20, 30
Config = GMFConfig | MLPConfig | NeuMFConfig
TOWER: dict[str, Any] = {"layers": (8, 6), "dropout": 0.0}
CONFIGS: dict[str, Config] = {
    "cosine": GMFConfig(factors=5, temperature=0.2),
    "neumf, softmax": NeuMFConfig(factors=5, loss="softmax", **TOWER),
    "cosine, adjusted": GMFConfig(factors=5, logit_adjustment=0.4),
    "mlp, adjusted": MLPConfig(loss="softmax", logit_adjustment=1.0, **TOWER),
}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def model(request: pytest.FixtureRequest) -> NeuMF:
    return make_model(request.param)


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    return random_histories(rng, NUM_USERS, NUM_ITEMS, share=0.2)


def make_model(config: Config) -> NeuMF:
    model = NeuMF(config, NUM_USERS, NUM_ITEMS).double()
    model.item_count_I.copy_(torch.arange(NUM_ITEMS) % 7)
    model.reset_parameters(3)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.requires_grad:
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.data.copy_(values * 0.7)
    return model


def batch_of(model: NeuMF, histories: HistoryTensors, batch_size: int = 10**6) -> InteractionBatch:
    batches = model.make_batches(histories, batch_size=batch_size, seed=5)
    return next(iter(batches.epoch(1)))


def plain_scores(model: NeuMF, user_S: Tensor, item_S: Tensor) -> Tensor:
    """Scores of pairs by the definitions of the settings."""
    config = model.config
    factors = model.user_factors[user_S], model.item_factors[item_S]
    if config.scores_cosines:
        return F.cosine_similarity(*factors) / (config.temperature or 0.15)
    parts = [factors[0] * factors[1]]
    if model.tower:
        rows = model.user_embedding[user_S], model.item_embedding[item_S]
        parts.append(F.relu(model.tower[0](torch.cat(rows, dim=1))))
    scores: Tensor = model.output(torch.cat(parts, dim=1)).squeeze(1)
    return scores


def plain_loss(model: NeuMF, batch: InteractionBatch) -> Tensor:
    """The mean over samples for bce, over interactions for softmax."""
    config, shape = model.config, batch.item_index_BK.shape
    user_S = batch.user_index_B[:, None].expand(shape).reshape(-1)
    item_S = batch.item_index_BK.reshape(-1)
    scores_BK = plain_scores(model, user_S, item_S).view(shape)
    if config.logit_adjustment:
        counts_BK = model.item_count_I[item_S].double().clamp(min=1.0).view(shape)
        scores_BK = scores_BK + config.logit_adjustment * counts_BK.log()
    if config.is_softmax:
        return F.cross_entropy(scores_BK, torch.zeros(shape[0], dtype=torch.int64))
    label_BK = batch.label_BK.expand(shape).double()
    return F.binary_cross_entropy_with_logits(scores_BK, label_BK)


@pytest.mark.parametrize("batch_size", [20, 10**6], ids=["distinct items", "whole table"])
def test_loss_and_gradients_are_the_plain_ones(
    model: NeuMF, rng: np.random.Generator, batch_size: int
) -> None:
    histories = random_histories(rng, NUM_USERS, NUM_ITEMS - 1, share=0.2)  # no user has all items
    histories = HistoryTensors(histories.offsets, histories.item_index, NUM_ITEMS)
    batch = batch_of(model, histories, batch_size)
    parameters = [one for one in model.parameters() if one.requires_grad and one.numel()]
    loss, expected = model.train()(batch), plain_loss(model, batch)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    found, wanted = (torch.autograd.grad(each, parameters) for each in (loss, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-8)


def test_scores_are_the_plain_ones(model: NeuMF, histories: HistoryTensors) -> None:
    user_B = torch.tensor([3, 9])
    state = model.eval().user_state(user_B, histories.rows(user_B))
    expected = plain_scores(
        model, user_B.repeat_interleave(NUM_ITEMS), torch.arange(NUM_ITEMS).repeat(2)
    ).detach()
    torch.testing.assert_close(model.score_catalogue(state), expected.view(2, NUM_ITEMS))


def test_new_users_are_fitted_to_their_histories(model: NeuMF) -> None:
    """The favourites of an invented row come first again after a row is fitted to them."""
    model = model.float().eval()
    generator = torch.Generator().manual_seed(1)
    known = model.user_state(torch.tensor([4]), histories_of([{0}], NUM_ITEMS))
    rows = [torch.randn(part.shape, generator=generator) for part in known.parts]  # type: ignore[union-attr]
    taste = type(known)(known.has_history_B, tuple(rows))
    favourites = set(model.score_catalogue(taste).topk(6).indices[0].tolist())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fitted = model.fold_in(histories_of([favourites], NUM_ITEMS))
    place_I = model.score_catalogue(fitted)[0].argsort(descending=True).argsort()
    assert place_I[sorted(favourites)].double().mean() < 6.0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_new_users_are_fitted_by_the_negatives_of_training(
    histories: HistoryTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretaste.models.neumf import fold_in

    config = GMFConfig(factors=5, negatives=9)
    model, shapes = make_model(config).float(), []
    value_and_gradients = fold_in.chunked.value_and_gradients

    def noted(inputs: Any, samples: Any) -> Any:
        shapes.append((samples.item_index_BK.shape[1], samples.objective.name))
        return value_and_gradients(inputs, samples)

    monkeypatch.setattr(fold_in.chunked, "value_and_gradients", noted)
    model.eval().fold_in(histories[:2])
    assert set(shapes) == {(10, "softmax")}


def test_output_weights_of_cosines_stay_one(histories: HistoryTensors) -> None:
    model = make_model(CONFIGS["cosine"])
    assert model.output.weight.eq(1.0).all()
    assert model.output.bias.eq(0.0).all()
    learned = model.parameter_groups()["all"]
    assert all(parameter is not one for one in model.output.parameters() for parameter in learned)


@pytest.mark.parametrize(
    ("config", "settings", "named"),
    [
        (
            GMFConfig,
            {"temperature": 0.1, "loss": "bce"},
            ("temperature", 0.1, "bce", "--temperature none", "softmax"),
        ),
        (NeuMFConfig, {"loss": "ccl"}, ("loss", "ccl")),
        (NeuMFConfig, {"logit_adjustment": 0.3}, ("logit_adjustment", 0.3, "bce")),
        (GMFConfig, {"batch_layout": "shuffled"}, ("softmax", "batch_layout", "grouped")),
    ],
)
def test_settings_without_effect_are_refused(
    config: type[Config], settings: dict[str, Any], named: Named
) -> None:
    with raises(SettingError, *named):
        config(**settings)
