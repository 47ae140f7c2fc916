"""NeuMF's grouped, split form against the network written out plainly, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from foretaste.errors import SettingError
from foretaste.evaluation.ranking import scoring
from foretaste.models.neumf.batches import InteractionBatch, InteractionBatches
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from tests.messages import raises
from tests.models.neumf.plain import PlainNeuMF
from tests.ops.cases import random_histories

NUM_USERS, NUM_ITEMS = 25, 60
CONFIGS = {
    "neumf": NeuMFConfig(factors=5, layers=(8, 7, 6), dropout=0.5),
    "neumf, one layer": NeuMFConfig(factors=3, layers=(6, 9), dropout=0.3),
    "gmf": GMFConfig(factors=5, loss="bce"),
    "mlp": MLPConfig(layers=(10, 8, 4, 3), dropout=0.2),
}
Config = NeuMFConfig | GMFConfig | MLPConfig


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def model(request: pytest.FixtureRequest) -> NeuMF:
    """A model with weights far from their small start, so that every term matters."""
    return make_model(request.param)


def make_model(config: Config) -> NeuMF:
    model = NeuMF(config, NUM_USERS, NUM_ITEMS).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(values * 0.7)
    return model


def batches_of(
    rng: np.random.Generator, config: NeuMFConfig, batch_size: int
) -> Iterator[InteractionBatch]:
    histories = random_histories(rng, NUM_USERS, NUM_ITEMS, share=0.2)
    return InteractionBatches(histories, config, batch_size, seed=5).epoch(2)


@pytest.mark.parametrize(
    ("layout", "batch_size", "samples_at_once"),
    [("grouped", 40, 17), ("grouped", 10_000, 1), ("shuffled", 10_000, 1 << 14)],
)
def test_loss_and_gradients_equal_the_plain_network(
    model: NeuMF,
    rng: np.random.Generator,
    limit: Callable[..., None],
    layout: str,
    batch_size: int,
    samples_at_once: int,
) -> None:
    block_samples = 3 * samples_at_once
    limit(samples=samples_at_once, block_samples=block_samples, block_samples_per_item=1)
    config = NeuMFConfig(negatives=3, batch_layout=layout)
    plain = PlainNeuMF(model)
    for _, batch in zip(range(4), batches_of(rng, config, batch_size), strict=False):
        assert (batch.num_samples < NUM_ITEMS) == (batch_size < NUM_ITEMS)
        model.zero_grad()
        plain.zero_grad()
        loss, expected = model.train()(batch), plain.loss(batch, training=True)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(loss, expected)
        for name, parameter in model.named_parameters():
            if parameter.numel():
                wanted = getattr(plain, name.replace(".", "_")).grad
                torch.testing.assert_close(
                    parameter.grad, wanted, msg=lambda m, n=name: f"{n}: {m}"
                )


def test_nothing_is_dropped_outside_training(model: NeuMF, rng: np.random.Generator) -> None:
    (batch,) = batches_of(rng, NeuMFConfig(negatives=3), 10_000)
    torch.testing.assert_close(model.eval()(batch), PlainNeuMF(model).loss(batch, training=False))


def test_scores_are_the_plain_logits(model: NeuMF, rng: np.random.Generator) -> None:
    histories = random_histories(rng, NUM_USERS, NUM_ITEMS)
    user_B = torch.tensor([3, 9, 24])
    state = model.eval().user_state(user_B, histories.rows(user_B))
    expected = PlainNeuMF(model).logits(
        user_B.repeat_interleave(NUM_ITEMS), torch.arange(NUM_ITEMS).repeat(3)
    )
    torch.testing.assert_close(model.score_catalogue(state), expected.detach().view(3, NUM_ITEMS))


def test_items_are_projected_once_for_many_answers(model: NeuMF, rng: np.random.Generator) -> None:
    histories = random_histories(rng, NUM_USERS, NUM_ITEMS)
    model.eval()
    kept = []
    for _ in range(2):
        with scoring(model):
            model.score_catalogue(model.fold_in(histories[3:5]))
        kept.append((model._frozen_inputs, model._user_prior))
    assert kept[0][0] is not None
    assert kept[0][0] is kept[1][0]
    assert kept[0][1] is kept[1][1]


def test_nothing_is_kept_of_weights_that_move(model: NeuMF, rng: np.random.Generator) -> None:
    histories = random_histories(rng, NUM_USERS, NUM_ITEMS)
    model.train()
    before = model.score_catalogue(model.fold_in(histories[3:5]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    moved = model.score_catalogue(model.fold_in(histories[3:5]))
    assert not torch.allclose(before, moved)
    torch.testing.assert_close(moved, model.eval().score_catalogue(model.fold_in(histories[3:5])))


def test_initial_weights_are_the_papers() -> None:
    model = NeuMF(NeuMFConfig(factors=32, layers=(128, 64, 32)), 4000, 3000)
    model.reset_parameters(seed=1)
    tables = (model.user_factors, model.item_factors, model.user_embedding, model.item_embedding)
    for table in tables:
        assert table.std().item() == pytest.approx(0.01, rel=0.02)
        assert abs(table.mean().item()) < 1e-4
    for layer, (width, next_width) in zip(model.tower, [(128, 64), (64, 32)], strict=True):
        assert_uniform(layer.weight, math.sqrt(6 / (width + next_width)))
        assert layer.bias.eq(0.0).all()
    assert_uniform(model.output.weight, math.sqrt(3 / 64))
    assert model.output.bias.eq(0.0).all()


def assert_uniform(weight: torch.Tensor, bound: float) -> None:
    assert weight.abs().max().item() <= bound
    assert weight.abs().max().item() > 0.9 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.25)


@pytest.mark.parametrize("layers", [(64,), (), (7, 4)])
def test_wrong_towers_are_refused(layers: tuple[int, ...]) -> None:
    with raises(SettingError, "layers", layers):
        NeuMFConfig(layers=layers)
