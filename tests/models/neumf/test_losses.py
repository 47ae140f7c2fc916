"""Losses and scores of the NeuMF family beside the default ones, written out plainly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.errors import SettingError
from foretaste.models.config import SamplingConfig
from foretaste.models.neumf.batches import InteractionBatch, dropped
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.histories import HistoryTensors
from tests.models.neumf.test_fold_in import mean_place
from tests.ops.cases import histories_of, random_histories

NUM_USERS, NUM_ITEMS = 20, 30
Config = GMFConfig | MLPConfig | NeuMFConfig
TOWER: dict[str, Any] = {"layers": (8, 6), "dropout": 0.0}
CONFIGS: dict[str, Config] = {
    "ccl": GMFConfig(factors=5, loss="ccl", margin=0.1, negative_weight=7.0),
    "cosine, bce": GMFConfig(factors=5, loss="bce", cosine=True, temperature=0.2),
    "cosine, softmax": GMFConfig(factors=5),
    "gmf, biases": GMFConfig(factors=5, loss="bce", biases=True, l2_rows=0.3),
    "gmf, dot product": GMFConfig(
        factors=5, loss="softmax", dot_product=True, biases=True, l2_rows=0.3
    ),
    "gmf, softmax": GMFConfig(factors=5, cosine=False),
    "neumf, softmax": NeuMFConfig(factors=5, loss="softmax", biases=True, l2_rows=0.3, **TOWER),
    "mlp, softmax": MLPConfig(loss="softmax", biases=True, **TOWER),
    "cosine, adjusted": GMFConfig(factors=5, logit_adjustment=0.4),
    "neumf, adjusted": NeuMFConfig(
        factors=5, loss="softmax", biases=True, logit_adjustment=0.4, **TOWER
    ),
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


def batch_of(
    model: NeuMF, histories: HistoryTensors, batch_size: int = 10**6, **settings: bool
) -> InteractionBatch:
    sampling = SamplingConfig(negatives=4, **settings)  # type: ignore[arg-type]
    batches = model.make_batches(histories, batch_size=batch_size, seed=5, sampling=sampling)
    return next(iter(batches.epoch(1)))


def plain_scores(model: NeuMF, user_S: Tensor, item_S: Tensor) -> Tensor:
    """Scores of pairs by the definitions of the settings."""
    config = model.config
    factors = model.user_factors[user_S], model.item_factors[item_S]
    if config.scores_cosines:
        divisor = 1.0 if config.resolved_loss == "ccl" else config.temperature or 0.15
        return F.cosine_similarity(*factors) / divisor
    parts = [factors[0] * factors[1]]
    if model.tower:
        rows = model.user_embedding[user_S], model.item_embedding[item_S]
        parts.append(F.relu(model.tower[0](torch.cat(rows, dim=1))))
    scores = model.output(torch.cat(parts, dim=1)).squeeze(1)
    if config.biases:
        scores = scores + (model.user_bias[user_S] + model.item_bias[item_S]).squeeze(1)
    return scores


def plain_loss(model: NeuMF, batch: InteractionBatch) -> Tensor:
    """The mean over samples for bce, over interactions for the others, and the penalty."""
    config, shape = model.config, batch.item_index_BK.shape
    user_S = batch.user_index_B[:, None].expand(shape).reshape(-1)
    item_S = batch.item_index_BK.reshape(-1)
    scores_BK = plain_scores(model, user_S, item_S).view(shape)
    if config.logit_adjustment:
        counts_BK = model.item_count_I[item_S].double().clamp(min=1.0).view(shape)
        scores_BK = scores_BK + config.logit_adjustment * counts_BK.log()
    positive_B, negative_BN = scores_BK[:, 0], scores_BK[:, 1:]
    if config.resolved_loss == "bce":
        loss = F.binary_cross_entropy_with_logits(scores_BK, batch.label_BK.expand(shape).double())
    elif config.resolved_loss == "softmax":
        loss = F.cross_entropy(scores_BK, torch.zeros(shape[0], dtype=torch.int64))
    else:
        excess_B = F.relu(negative_BN - config.margin).mean(1)
        loss = (1.0 - positive_B + config.negative_weight * excess_B).mean()
    tables = [(model.user_factors, model.item_factors)]
    tables += [(model.user_embedding, model.item_embedding)]
    tables += [(model.user_bias, model.item_bias)] if config.biases else []
    squares = [u[user_S].square().sum(1) + i[item_S].square().sum(1) for u, i in tables]
    return loss + 0.5 * config.l2_rows * torch.stack(squares).sum(0).mean()


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("batch_size", [20, 10**6], ids=["distinct items", "whole table"])
def test_loss_and_gradients_are_the_plain_ones(
    model: NeuMF, rng: np.random.Generator, batch_size: int, shares: bool
) -> None:
    histories = random_histories(rng, NUM_USERS, NUM_ITEMS - 1, share=0.2)  # nobody has all
    histories = HistoryTensors(histories.offsets, histories.item_index, NUM_ITEMS)
    settings = {"shared_negatives": shares, "verified_negatives": not shares}
    batch = batch_of(model, histories, batch_size, **settings)
    parameters = [one for one in model.parameters() if one.requires_grad and one.numel()]
    loss, expected = model.train()(batch), plain_loss(model, batch)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    found, wanted = (torch.autograd.grad(each, parameters) for each in (loss, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-8)


def test_a_bias_of_the_user_is_learned_where_the_loss_tells_users(
    model: NeuMF, histories: HistoryTensors
) -> None:
    if not model.config.biases:
        pytest.skip("no biases")
    is_learned = model.config.resolved_loss == "bce"
    assert model.user_bias.requires_grad == is_learned
    bias_B1 = model.float().eval().fold_in(histories).parts[2]
    assert isinstance(bias_B1, torch.Tensor)
    assert bool((bias_B1 != model.user_bias.mean()).any()) == is_learned


def test_scores_are_the_plain_ones(model: NeuMF, histories: HistoryTensors) -> None:
    user_B = torch.tensor([3, 9])
    state = model.eval().user_state(user_B, histories.rows(user_B))
    expected = plain_scores(
        model, user_B.repeat_interleave(NUM_ITEMS), torch.arange(NUM_ITEMS).repeat(2)
    ).detach()
    torch.testing.assert_close(model.score_catalogue(state), expected.view(2, NUM_ITEMS))


def test_new_users_are_fitted_to_their_histories(model: NeuMF) -> None:
    """The favourites of a made-up row come first again once a row is fitted to them."""
    model = model.float().eval()
    generator = torch.Generator().manual_seed(1)
    known = model.user_state(torch.tensor([4]), histories_of([{0}], NUM_ITEMS))
    rows = [torch.randn(part.shape, generator=generator) for part in known.parts]  # type: ignore[union-attr]
    taste = type(known)(known.has_history_B, tuple(rows))
    favourites = set(model.score_catalogue(taste).topk(6).indices[0].tolist())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fitted = model.fold_in(histories_of([favourites], NUM_ITEMS))
    assert mean_place(model, fitted, favourites) < 6.0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("negatives", [4, 9])
def test_new_users_are_fitted_by_the_negatives_of_training(
    negatives: int, histories: HistoryTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretaste.models.neumf import fold_in

    model, shapes = make_model(CONFIGS["ccl"]).float(), []
    loss = fold_in.chunked.loss

    def noted(inputs: Any, samples: Any) -> Tensor:
        shapes.append((samples.item_index_BK.shape[1], samples.objective.name))
        return loss(inputs, samples)

    monkeypatch.setattr(fold_in.chunked, "loss", noted)
    model.sampling = SamplingConfig(negatives=negatives)
    model.eval().fold_in(histories[:2])
    assert set(shapes) == {(1 + negatives, "ccl")}


@pytest.mark.parametrize(
    ("settings", "loss", "scores_cosines"),
    [
        ({}, "softmax", True),
        ({"loss": "ccl"}, "ccl", True),
        ({"loss": "bce"}, "bce", False),
        ({"loss": "bce", "cosine": True}, "bce", True),
        ({"cosine": True}, "softmax", True),
        ({"dot_product": True}, "bce", False),
        ({"biases": True}, "bce", False),
        ({"loss": "softmax", "dot_product": True}, "softmax", False),
        ({"cosine": False}, "softmax", False),
    ],
)
def test_loss_and_cosines_follow_each_other_and_what_excludes_them(
    settings: dict[str, Any], loss: str, scores_cosines: bool
) -> None:
    config = GMFConfig(**settings)
    assert (config.objective["name"], config.scores_cosines) == (loss, scores_cosines)
    resolved = config.resolved_settings
    assert (resolved["loss"], resolved["cosine"]) == (loss, scores_cosines)
    assert resolved["temperature"] == (0.15 if scores_cosines and loss != "ccl" else None)
    assert resolved["negative_weight"] == (150.0 if loss == "ccl" else None)


def test_output_weights_of_cosines_stay_one(histories: HistoryTensors) -> None:
    model = make_model(CONFIGS["cosine, bce"])
    assert model.output.weight.eq(1.0).all()
    assert model.output.bias.eq(0.0).all()
    learned = model.parameter_groups()["all"]
    assert all(parameter is not one for one in model.output.parameters() for parameter in learned)


def test_rows_outside_the_batch_are_left_alone(histories: HistoryTensors) -> None:
    model = make_model(GMFConfig(factors=5, loss="bce", l2_rows=0.3)).train()
    batch = batch_of(model, histories, 20)
    model(batch).backward()
    for table, index in (
        (model.user_factors, batch.user_index_B),
        (model.item_factors, batch.item_index_BK),
    ):
        assert table.grad is not None
        is_touched = torch.zeros(len(table), dtype=torch.bool)
        is_touched[index.flatten().long()] = True
        assert torch.equal(table.grad.abs().sum(1) > 0.0, is_touched)
        assert not is_touched.all()


def test_dropout_of_embeddings(histories: HistoryTensors) -> None:
    """Single numbers of user vectors, by rows of the whole batch, and in training alone."""
    model = make_model(GMFConfig(factors=64, loss="bce", embedding_dropout=0.25))
    batch = batch_of(model, histories)
    ones = [torch.ones(len(batch.user_index_B), 64)]
    (found,) = dropped(ones, 0.25, batch.dropout_key, batch.first_row)
    assert found.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert found.eq(0.0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    (part,) = dropped([ones[0][7:]], 0.25, batch.dropout_key, batch[7:].first_row)
    assert torch.equal(part, found[7:])
    without = make_model(GMFConfig(factors=64, loss="bce")).train()(batch)
    assert not torch.allclose(model.train()(batch), without)
    torch.testing.assert_close(model.eval()(batch), without)


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (GMFConfig, {"margin": 0.3}, "margin is 0.3, which only the loss ccl has"),
        (GMFConfig, {"negative_weight": 3.0, "loss": "softmax"}, "only the loss ccl has"),
        (GMFConfig, {"temperature": 0.1, "loss": "bce"}, "only cosine scores"),
        (GMFConfig, {"temperature": 0.1, "loss": "ccl"}, "only cosine scores"),
        (GMFConfig, {"cosine": False, "loss": "ccl"}, "the loss ccl is one of cosines"),
        (GMFConfig, {"biases": True, "cosine": True}, "cosine scores have none"),
        (GMFConfig, {"biases": True, "loss": "ccl"}, "cosine scores have none"),
        (NeuMFConfig, {"loss": "ccl"}, "loss is 'ccl'; it must be bce or softmax"),
        (NeuMFConfig, {"logit_adjustment": 0.3}, "only the loss softmax has, and loss is bce"),
        (GMFConfig, {"logit_adjustment": 0.3, "loss": "ccl"}, "only the loss softmax has"),
    ],
)
def test_settings_without_effect_are_refused(
    config: type[Config], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        config(**settings)


def test_what_compares_candidates_needs_them_together(histories: HistoryTensors) -> None:
    model = make_model(CONFIGS["neumf, softmax"])
    sampling = SamplingConfig(negatives=4, batch_layout="shuffled")
    with pytest.raises(SettingError, match=r"loss is softmax.* batch_layout is shuffled"):
        model.make_batches(histories, batch_size=10, seed=1, sampling=sampling)
