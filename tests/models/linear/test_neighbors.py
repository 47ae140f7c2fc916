"""Item-kNN and RP3beta: their weights by hand, and their bounds of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.models.linear import pairs
from foretaste.models.linear.neighbors import NeighborsModel
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import Definition, build_model, config_class
from tests.messages import raises
from tests.models.linear.conftest import NUM_ITEMS
from tests.ops.cases import of_matrix

MODELS: dict[str, dict[str, Any]] = {
    "itemknn": {"shrinkage": 3.0, "user_power": 0.0},
    "rp3beta": {"cut": "target", "alpha": 0.8, "beta": 0.3},
}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fitted(name: str, matrix: np.ndarray, num_neighbors: int = NUM_ITEMS) -> NeighborsModel:
    config = config_class(name)(neighbors=num_neighbors, **MODELS[name])
    model = build_model(name, config, *matrix.shape)
    assert isinstance(model, NeighborsModel)
    model.fit(of_matrix(matrix), lambda *progress: None)
    return model


def plain_weights(name: str, matrix: np.ndarray) -> np.ndarray:
    """The formulas of both models for all pairs."""
    settings, users_of = MODELS[name], np.maximum(matrix.sum(0), 1)
    if name == "itemknn":
        norms = np.sqrt(np.outer(users_of, users_of))
        weights = matrix.T @ matrix / (norms + settings["shrinkage"])
    else:
        to_user = (matrix / users_of).T ** settings["alpha"]
        to_item = (matrix / np.maximum(matrix.sum(1), 1)[:, None]) ** settings["alpha"]
        weights = to_user @ to_item / users_of ** settings["beta"]
    np.fill_diagonal(weights, 0)
    return np.asarray(weights)


def test_a_cut_by_source_keeps_each_items_strongest_targets(dense: np.ndarray) -> None:
    weights = plain_weights("rp3beta", dense)
    settings = MODELS["rp3beta"] | {"cut": "source"}
    found = {}
    for num_neighbors in (4, NUM_ITEMS):
        config = config_class("rp3beta")(neighbors=num_neighbors, **settings)
        model = build_model("rp3beta", config, *dense.shape)
        assert isinstance(model, NeighborsModel)
        model.fit(of_matrix(dense), lambda *progress: None)
        found[num_neighbors] = dense_weights(model).numpy()
    np.testing.assert_allclose(found[NUM_ITEMS], weights, rtol=1e-5, atol=1e-9)
    for source in range(NUM_ITEMS):
        order = np.lexsort((np.arange(NUM_ITEMS), -weights[source].round(9)))[:4]
        kept = [int(target) for target in order if weights[source, target] > 0]
        assert sorted(np.flatnonzero(found[4][source])) == sorted(kept)


def dense_weights(model: NeighborsModel) -> Tensor:
    return model.similarity(torch.arange(model.num_items)).clamp(min=0)


def test_weights_equal_the_formula(name: str, dense: np.ndarray) -> None:
    found = dense_weights(fitted(name, dense)).numpy()
    np.testing.assert_allclose(found, plain_weights(name, dense), rtol=1e-5, atol=1e-9)


def test_the_strongest_neighbours_stay_and_the_first_among_equals(
    name: str, dense: np.ndarray
) -> None:
    dense[:, 5] = dense[:, 9] = dense[:, 2]
    weights = plain_weights(name, dense)
    kept = dense_weights(fitted(name, dense, 4)) > 0
    for target in range(NUM_ITEMS):
        order = np.lexsort((np.arange(NUM_ITEMS), -weights[:, target].round(9)))[:4]
        expected = sorted(item for item in order if weights[item, target])
        assert kept[:, target].nonzero()[:, 0].tolist() == expected
    assert kept.sum() == 4 * (NUM_ITEMS - 1)


def test_scores_add_the_weights_of_the_history(name: str, dense: np.ndarray) -> None:
    model, dense = fitted(name, dense, 3), dense[dense.any(1)]
    scores = model.score_catalogue(model.fold_in(of_matrix(dense)))
    expected = torch.tensor(dense).float() @ dense_weights(model)
    reached = expected > 0
    torch.testing.assert_close(scores[reached], expected[reached])
    assert (~reached).sum() > len(dense)
    assert (scores[~reached] < 0).all()


def test_items_without_a_neighbour_follow_in_popularity_order(name: str) -> None:
    matrix = np.zeros((8, 6))
    matrix[:2, :2] = 1
    matrix[2:, 4] = matrix[2:5, 2] = matrix[2, 5] = 1
    model = fitted(name, matrix)
    (scores,) = model.score_catalogue(model.fold_in(of_matrix(np.eye(6)[:1])))
    assert scores.argsort(descending=True).tolist()[:4] == [1, 4, 2, 0]


def test_chunks_and_threads_change_nothing(
    name: str, dense: np.ndarray, monkeypatch: pytest.MonkeyPatch, limit: Callable[..., None]
) -> None:
    whole = fitted(name, dense)
    expected = whole.score_catalogue(whole.fold_in(of_matrix(dense)))
    for num_chunks, pairs_at_once, num_threads in ((1, 40, 1), (7, 1, 2)):
        monkeypatch.setattr(pairs, "NUM_CHUNKS", num_chunks)
        limit(neighbor_pairs=pairs_at_once)
        monkeypatch.setattr("torch.get_num_threads", lambda n=num_threads: n)
        model = fitted(name, dense)
        assert torch.equal(model.target_M, whole.target_M)
        assert torch.equal(model.weight_M, whole.weight_M)
        assert torch.equal(model.score_catalogue(model.fold_in(of_matrix(dense))), expected)


@pytest.mark.parametrize("scale", [1e-18, 1e-3, 1e18])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("itemknn", {"shrinkage": 0.0, "user_power": 0.7}),
        ("rp3beta", {"cut": "source", "alpha": 1.5, "beta": 0.4}),
        ("rp3beta", {"cut": "target", "alpha": 2.0, "beta": 1.0}),
    ],
)
def test_weights_of_any_size_are_finite_and_small_ones_kept(
    name: str, settings: dict[str, Any], scale: float, dense: np.ndarray
) -> None:
    """Play counts go from one to a hundred million."""
    rng = np.random.default_rng(3)
    plays = dense * (10.0 ** rng.uniform(0, 8, dense.shape) * scale).astype(np.float32)
    model = build_model(name, config_class(name)(neighbors=NUM_ITEMS, **settings), *dense.shape)
    assert isinstance(model, NeighborsModel)
    model.fit(of_matrix(plays, weighted=True), lambda *progress: None)
    if name == "itemknn":
        user = np.maximum((plays > 0).sum(1), 1.0)[:, None] ** -settings["user_power"]
        norm = np.sqrt((user * plays**2).sum(0))
        expected = plays.T @ (user * plays) / np.maximum(np.outer(norm, norm), 1e-300)
    else:
        of_users, of_items = plays.sum(1, keepdims=True), np.maximum(plays.sum(0), 1e-300)
        to_user = (plays / of_items).T ** settings["alpha"]
        to_item = (plays / np.maximum(of_users, 1e-300)) ** settings["alpha"]
        expected = to_user @ to_item / of_items ** settings["beta"]
    np.fill_diagonal(expected, 0)
    assert model.weight_M.isfinite().all()
    np.testing.assert_allclose(dense_weights(model).numpy(), expected, rtol=1e-4, atol=1e-37)


def test_a_million_items_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_: 4 * 2**30)
    for name in ("itemknn", "rp3beta"):
        check_model_fits(Definition(name, config_class(name)(), 10, 1_000_000), cpu, to_train=True)
    many = config_class("itemknn")(neighbors=10_000)
    with raises(
        UnsupportedError, "itemknn", 10, "1,000,000", many, "74.5 GiB", "4.0 GiB", "--neighbors"
    ):
        check_model_fits(Definition("itemknn", many, 10, 1_000_000), cpu)


def test_weights_far_below_one_are_kept() -> None:
    matrix = (np.random.default_rng(2).random((20_000, 5)) < 0.5).astype(np.float64)
    config = config_class("rp3beta")(alpha=2.0, beta=1.0)
    model = build_model("rp3beta", config, *matrix.shape)
    assert isinstance(model, NeighborsModel)
    model.fit(of_matrix(matrix), lambda *progress: None)
    users_of, items_of = matrix.sum(0), np.maximum(matrix.sum(1), 1)
    expected = (matrix.T / users_of[:, None] ** 2) @ (matrix / items_of[:, None] ** 2) / users_of
    np.fill_diagonal(expected, 0)
    assert expected.max() < 1e-8
    np.testing.assert_allclose(dense_weights(model).numpy(), expected, rtol=1e-4)
