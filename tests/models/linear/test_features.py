"""Features of items beside their formula in NumPy, and their purpose: items that nobody has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from foretaste.models.linear import pairs, ridge
from foretaste.models.linear.ridge import RidgeModel
from foretaste.models.registry import build_model, config_class
from foretaste.ops.histories import HistoryTensors
from tests.models.linear.tables import neighbor_weights
from tests.models.linear.test_slist import plain_gram_and_targets
from tests.ops.cases import histories_of

NUM_ITEMS = 15
NEW = [12, 13, 14]
VALUES = [[0, 1, 2, 12], [3, 4, 12, 13], [1, 3, 5, 7, 9, 13], [6, 8], [2, 14], [0, 1, 5]]
BETA, POWER, DROPOUT = 7.0, 0.5, 0.4
SETTINGS = {
    "ease": {"l2": 5.0, "dropout": DROPOUT, "user_power": 0.0},
    "slist": {"l2": 5.0, "recency": 0.7, "window": 4, "set_weight": 0.3},
}


@pytest.fixture
def sequences(rng: np.random.Generator) -> list[list[int]]:
    """Items of users, oldest first; nobody has the new ones."""
    return [rng.permutation(NUM_ITEMS - len(NEW))[:length].tolist() for length in [0, *[5] * 60]]


def ordered(sequences: list[list[int]]) -> HistoryTensors:
    position = [place for row in sequences for place in np.argsort(row).tolist()]
    return replace(
        histories_of(sequences, NUM_ITEMS), position=torch.tensor(position, dtype=torch.int32)
    )


def built(name: str, neighbors: int | str = "all", **changed: Any) -> RidgeModel:
    settings = {"neighbors": neighbors, "feature_weight": BETA, "feature_power": POWER}
    config = config_class(name)(**settings | SETTINGS[name] | changed)
    model = build_model(name, config, 61, NUM_ITEMS)
    assert isinstance(model, RidgeModel)
    return model


def fitted(
    name: str, sequences: list[list[int]], neighbors: int | str = "all", **changed: Any
) -> RidgeModel:
    model = built(name, neighbors, **changed)
    model.take_features(histories_of(VALUES, NUM_ITEMS))
    model.fit(ordered(sequences), lambda *how_far: None)
    return model


def plain(name: str, sequences: list[list[int]]) -> tuple[np.ndarray, ...]:
    """G, A and the penalties, and A without features."""
    has_value = np.array([np.isin(np.arange(NUM_ITEMS), value) for value in VALUES], dtype=float)
    shared = has_value.T @ np.diag(BETA * has_value.sum(1) ** -POWER) @ has_value
    sets = np.array([np.isin(np.arange(NUM_ITEMS), row) for row in sequences], dtype=float)
    if name == "ease":
        gram = targets = sets.T @ sets
        penalty = 5.0 + DROPOUT / (1 - DROPOUT) * np.diag(gram + shared)
    else:
        gram, targets = plain_gram_and_targets(sequences)
        shared, penalty = 0.3 * shared, np.full(NUM_ITEMS, 5.0)
    return gram + shared, targets + shared, penalty, targets


@pytest.mark.parametrize("name", SETTINGS)
def test_the_dense_form_is_the_formula(name: str, sequences: list[list[int]]) -> None:
    gram, targets, penalty, *_ = plain(name, sequences)
    inverse = np.linalg.inv(gram + np.diag(penalty))
    product = inverse @ targets
    expected = product - inverse @ np.diag(np.diag(product) / np.diag(inverse))
    found = fitted(name, sequences).weight_II.numpy()
    assert np.abs(found - expected).max() < 1e-5
    assert (found[:, NEW] != 0).any(0).all()


@pytest.mark.parametrize("num_popular", [0, 5, NUM_ITEMS])
@pytest.mark.parametrize("num_neighbors", [2, 6, 9])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_sparse_form_is_solved_among_the_same_candidates(
    name: str,
    num_neighbors: int,
    num_popular: int,
    sequences: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new item's candidates share the most weight with it; among equals the most popular come
    first."""
    monkeypatch.setattr(pairs, "MOST_POPULAR", num_popular)
    monkeypatch.setattr(ridge, "LARGEST_VALUE", 5)  # the value of six items proposes none
    has_value = np.array(
        [np.isin(np.arange(NUM_ITEMS), value) for value in VALUES if len(value) <= 5], dtype=float
    )
    weight = BETA * has_value.sum(1) ** -POWER * (0.3 if name == "slist" else 1)
    proposed = has_value.T @ np.diag(weight) @ has_value
    gram, targets, penalty, own_targets = plain(name, sequences)
    num_users = np.bincount(np.concatenate(sequences).astype(int), minlength=NUM_ITEMS)
    expected = np.zeros_like(gram)
    for item in range(NUM_ITEMS):
        shared = own_targets[:, item] + proposed[:, item]
        strength = (shared / np.sqrt(np.maximum(np.diag(gram), 1e-9))).round(9)
        others = [o for o in range(NUM_ITEMS) if o != item and num_users[o] and shared[o] > 0]
        if item in NEW:
            chosen = sorted(others, key=lambda o: (-shared[o].round(9), -num_users[o], o))
        else:
            chosen = sorted(others, key=lambda o: (-strength[o], o))
        chosen = chosen[:num_neighbors]
        system = gram[np.ix_(chosen, chosen)] + np.diag(penalty[chosen])
        expected[chosen, item] = np.linalg.solve(system, targets[chosen, item])
    model = fitted(name, sequences)
    found = neighbor_weights(model, ordered(sequences), num_neighbors)
    assert np.abs(found - expected).max() < 1e-5
    assert (expected[:, NEW] != 0).any(0).tolist() == [True, True, True]
    assert not found[NEW].any()


@pytest.mark.parametrize("neighbors", ["all", 6])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_weight_of_zero_equals_no_features(
    name: str, neighbors: int | str, sequences: list[list[int]]
) -> None:
    without = built(name, neighbors, feature_weight=0.0)
    without.fit(ordered(sequences), lambda *how_far: None)
    tiny = built(name, neighbors, feature_weight=1e-300)
    tiny.fit(ordered(sequences), lambda *how_far: None)
    weights = without.state_dict()
    assert all(torch.equal(weights[key], tiny.state_dict()[key]) for key in weights)
    assert not without.config.uses_features
    assert tiny.config.uses_features


@pytest.mark.parametrize("neighbors", ["all", 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_new_item_is_found_by_those_who_like_its_kind(name: str, neighbors: int | str) -> None:
    """Half of the people take red items and half blue ones; the last item of each colour is new."""
    red, blue = [0, 1, 2, 3, 12], [4, 5, 6, 7, 13]
    sequences = [list(np.roll(kind[:4], turn)) for kind in (red, blue) for turn in range(4)] * 5
    model = built(name, neighbors)
    model.take_features(histories_of([red, blue], NUM_ITEMS))
    model.fit(ordered(sequences), lambda *how_far: None)
    for kind, other in ((red, blue), (blue, red)):
        (scores,) = model.score_catalogue(model.fold_in(ordered([kind[:2]])))
        assert scores[kind[-1]] > 0
        assert scores[kind[-1]] > scores[other].max()
        similar, towards = model.similarity(torch.tensor([kind[-1], kind[0]]))
        assert set(similar.topk(3).indices.tolist()) <= set(kind[:4])
        assert torch.isinf(similar[other]).all()
        assert towards[kind[-1]] > 0


@pytest.mark.parametrize("neighbors", ["all", 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_scores_of_new_items_are_multiplied(
    name: str, neighbors: int | str, sequences: list[list[int]]
) -> None:
    one, four = (
        fitted(name, sequences, neighbors, new_item_factor=factor).eval() for factor in (1.0, 4.0)
    )
    histories = ordered(sequences)[1:]
    scores_BI, raised_BI = (
        model.score_catalogue(model.fold_in(histories)) for model in (one, four)
    )
    related_BI = scores_BI.abs() > 1e-6
    assert related_BI[:, NEW].any()
    factor_I = torch.ones(NUM_ITEMS)
    factor_I[NEW] = 4.0
    torch.testing.assert_close(raised_BI[related_BI], (scores_BI * factor_I)[related_BI])
