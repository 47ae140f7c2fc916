"""iALS: its loss, its sweeps, its new users."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.errors import SettingError
from foretaste.models.ials.config import IALSConfig
from foretaste.models.ials.model import IALS, BothSides
from foretaste.ops.histories import HistoryTensors
from tests.messages import raises
from tests.ops.cases import histories_of

NUM_USERS, NUM_ITEMS = 50, 30

Array = NDArray[np.float64]


@pytest.fixture
def histories(generator: torch.Generator) -> HistoryTensors:
    """Users like one half of the items or the other; the last user has none."""
    probability_UI = 0.05 + 0.4 * (
        torch.arange(NUM_USERS)[:, None] % 2 == torch.arange(NUM_ITEMS) % 2
    )
    drawn_UI = torch.rand(NUM_USERS, NUM_ITEMS, generator=generator) < probability_UI
    drawn_UI[-1] = False
    return histories_of([set(row.nonzero()[:, 0].tolist()) for row in drawn_UI], NUM_ITEMS)


def model_of(
    histories: HistoryTensors, num_items: int = NUM_ITEMS, **settings: float | str
) -> IALS:
    given: dict[str, Any] = {
        "factors": 6,
        "unobserved_weight": 0.3,
        "regularization": 0.02,
    } | settings
    model = IALS(IALSConfig(**given), NUM_USERS, num_items)
    model.count_items(histories)
    model.reset_parameters(1)
    return model


def sweep(model: IALS, histories: HistoryTensors) -> float:
    batch = next(iter(model.make_batches(histories).epoch(0)))
    assert isinstance(batch, BothSides)
    return float(model.sweep(batch))


def loss_of(model: IALS, histories: HistoryTensors) -> Tensor:
    """The loss per interaction, by its definition and differentiable."""
    config, observed_UI = model.config, histories.to_dense().double()
    users_UD, items_ID = model.user_factors.double(), model.item_factors.double()
    score_UI, weight = users_UD @ items_ID.T, config.unobserved_weight
    loss = (observed_UI * (score_UI - 1.0).square()).sum() + weight * score_UI.square().sum()
    user_U = observed_UI.sum(1) + weight * NUM_ITEMS
    item_I = observed_UI.sum(0) + weight * NUM_USERS
    for vector_RD, frequency_R in ((users_UD, user_U), (items_ID, item_I)):
        loss = loss + config.regularization * (frequency_R * vector_RD.square().sum(1)).sum()
    return loss / observed_UI.sum()


def test_a_sweep_gives_the_loss_and_lowers_it(histories: HistoryTensors) -> None:
    model = model_of(histories)
    losses = [sweep(model, histories) for _ in range(6)]
    assert losses[-1] == pytest.approx(float(loss_of(model, histories).detach()), rel=1e-5)
    assert losses[-1] < losses[0]
    assert all(later <= earlier * (1.0 + 1e-6) for earlier, later in pairwise(losses))


def test_sweeps_end_in_a_minimum(histories: HistoryTensors) -> None:
    model = model_of(histories)
    for num_sweeps, is_minimum in ((1, False), (1000, True)):
        for _ in range(num_sweeps):
            sweep(model, histories)
        model.zero_grad()
        loss_of(model, histories).backward()
        for parameter in (model.item_factors, model.user_factors):
            assert parameter.grad is not None
            assert (float(parameter.grad.abs().max()) < 1e-5) == is_minimum


def test_new_users_are_a_minimum_too(histories: HistoryTensors) -> None:
    model = model_of(histories)
    sweep(model, histories)
    with torch.no_grad():
        model.user_factors.copy_(model.fold_in(histories).parts[0])
    loss_of(model, histories).backward()
    assert model.user_factors.grad is not None
    assert float(model.user_factors.grad.abs().max()) < 1e-5


@pytest.mark.slow
def test_feature_values_are_users_whom_nothing_counts(histories: HistoryTensors) -> None:
    """After many sweeps each item solves the docstring's equations, computed in NumPy."""
    values = [set(range(0, NUM_ITEMS, 2)), {1, 3, 5, 7, NUM_ITEMS}, {4, 9, NUM_ITEMS + 1}]
    listed = replace(histories, num_items=NUM_ITEMS + 2)
    settings = {"feature_weight": 3.0, "feature_power": 0.5, "regularization": 0.1}
    model = model_of(listed, num_items=NUM_ITEMS + 2, **settings)
    alone = model_of(listed, num_items=NUM_ITEMS + 2, unobserved_weight="auto")
    model.take_features(histories_of(values, NUM_ITEMS + 2))
    for _ in range(1000):
        sweep(model, listed)
    items_ID = model.item_factors.detach().double().numpy()
    users_UD = model.user_factors.detach().double().numpy()
    has_UI = listed.to_dense().double().numpy()
    has_VI = histories_of(values, NUM_ITEMS + 2).to_dense().double().numpy()

    def solved(own: Array, others: Array, has: Array, weight: Array, num_pairs: int) -> Array:
        """Vectors of rows: the gradient of their part of the loss is zero there."""
        pairs = 0.3 * own.T @ own
        rows = []
        for one, c in zip(has, weight * has, strict=True):
            ridge = 0.1 * (c.sum() + 0.3 * num_pairs)
            gram = pairs + (others.T * c) @ others + ridge * np.eye(others.shape[1])
            rows.append(np.linalg.solve(gram, others.T @ (c * one)))
        return np.array(rows)

    ones = np.ones(NUM_ITEMS + 2)
    values_VD = solved(items_ID, items_ID, has_VI, ones, NUM_ITEMS + 2)
    everyone = np.concatenate((users_UD, values_VD))
    weight = np.concatenate((np.ones(NUM_USERS), 3.0 * has_VI.sum(1) ** -0.5))
    has = np.concatenate((has_UI, has_VI))
    expected_ID = solved(users_UD, everyone, has.T, weight, NUM_USERS)
    np.testing.assert_allclose(items_ID, expected_ID, atol=5e-3)
    # The rules of auto and popularity do not see them.
    assert torch.equal(model.item_count_I, alone.item_count_I)
    model.config = replace(model.config, unobserved_weight="auto", regularization="auto")
    assert model.unobserved_weight == alone.unobserved_weight


def test_new_users_follow_the_items(histories: HistoryTensors) -> None:
    """Items prepared for answers are dropped when the items change."""
    model = model_of(histories).eval()
    first = model.fold_in(histories).parts[0]
    changed = {**model.state_dict(), "item_factors": 2.0 * model.item_factors.detach()}
    model.load_state_dict(changed)
    assert not torch.allclose(model.fold_in(histories).parts[0], first)


def test_the_automatic_weight_depends_on_density(histories: HistoryTensors) -> None:
    sparse = histories_of([{user % 3} for user in range(NUM_USERS)], NUM_ITEMS)
    automatic = model_of(sparse, unobserved_weight="auto")
    weight = automatic.schedule(0, 1)["unobserved_weight"]
    assert weight == pytest.approx(20.0 / NUM_ITEMS)
    given = model_of(sparse, unobserved_weight=weight)
    assert sweep(automatic, sparse) == sweep(given, sparse)


def test_the_automatic_regularization_depends_on_popularity() -> None:
    """The regularization is highest if one item has all interactions."""
    for items, expected in (({3}, 0.1), ({3, 5, 6, 7}, 0.05)):
        alike = histories_of([items] * NUM_USERS, NUM_ITEMS)
        automatic = model_of(alike, regularization="auto")
        assert automatic.schedule(0, 1)["regularization"] == pytest.approx(expected)
        assert sweep(automatic, alike) == sweep(
            model_of(alike, regularization=automatic.regularization), alike
        )


def test_the_automatic_weight_is_at_most_one(histories: HistoryTensors) -> None:
    assert model_of(histories, unobserved_weight="auto").unobserved_weight == 1.0


@pytest.mark.parametrize(
    "setting", [{"unobserved_weight": 0.0}, {"regularization": 0.0}, {"factors": 0}]
)
def test_settings_out_of_range_are_refused(setting: dict[str, float]) -> None:
    (named,) = setting.items()
    with raises(SettingError, *named):
        IALSConfig(**setting)
