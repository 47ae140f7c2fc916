"""Item-kNN and RP3beta: their weights by hand, and their bounds of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.models.baselines import neighbors
from foretaste.models.baselines.neighbors import NeighborsModel, pair_sums
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import build_model, config_class
from tests.models.conftest import NUM_ITEMS, NUM_USERS
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
    """The formulas of both models, of all pairs."""
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


def test_by_source_each_item_keeps_its_strongest_targets(dense: np.ndarray) -> None:
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


def test_weights_are_those_of_the_formula(name: str, dense: np.ndarray) -> None:
    found = dense_weights(fitted(name, dense)).numpy()
    np.testing.assert_allclose(found, plain_weights(name, dense), rtol=1e-5, atol=1e-9)


def test_the_strongest_neighbours_stay_and_of_equal_ones_the_first(
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


def test_what_no_neighbour_speaks_for_follows_in_popularity_order(name: str) -> None:
    matrix = np.zeros((8, 6))
    matrix[:2, :2] = 1
    matrix[2:, 4] = matrix[2:5, 2] = matrix[2, 5] = 1
    model = fitted(name, matrix)
    (scores,) = model.score_catalogue(model.fold_in(of_matrix(np.eye(6)[:1])))
    assert scores.argsort(descending=True).tolist()[:4] == [1, 4, 2, 0]


def test_memory_is_bounded_and_blocks_change_nothing(
    name: str, dense: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, sizes = fitted(name, dense), []
    expected = whole.score_catalogue(whole.fold_in(of_matrix(dense)))

    def counted(*arguments: Any) -> tuple[Tensor, Tensor]:
        cells, weights = cells_and_weights(*arguments)
        sizes.append(len(cells))
        return cells, weights

    cells_and_weights = neighbors._cells_and_weights
    monkeypatch.setattr(neighbors, "_cells_and_weights", counted)
    for most, cells_per_pair in ((40, 8), (1, 8), (10**6, 0)):
        monkeypatch.setattr(neighbors, "_PAIRS_AT_ONCE", most)
        monkeypatch.setattr(neighbors, "_CELLS_PER_PAIR", cells_per_pair)
        sizes.clear()
        model = fitted(name, dense)
        assert max(sizes) <= max(most, NUM_ITEMS - 1)
        assert sum(sizes) == (dense.sum(1) ** 2).sum()
        assert torch.equal(model.target_M, whole.target_M)
        assert torch.equal(model.weight_M, whole.weight_M)
        assert torch.equal(model.score_catalogue(model.fold_in(of_matrix(dense))), expected)


def test_every_pair_comes_once_and_in_order(dense: np.ndarray) -> None:
    def pairs() -> Iterator[tuple[int, int, float]]:
        for tensors in pair_sums(of_matrix(dense), torch.arange(NUM_USERS).double()):
            yield from zip(*(tensor.tolist() for tensor in tensors), strict=True)

    table = dense.T @ (np.arange(NUM_USERS)[:, None] * dense)
    np.fill_diagonal(table, 0)
    items = np.argwhere(table)
    assert list(pairs()) == [(i, j, table[i, j]) for i, j in items.tolist()]


def test_a_million_items_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_: 4 * 2**30)
    for name in ("itemknn", "rp3beta"):
        check_model_fits(name, config_class(name)(), 10, 1_000_000, cpu, to_train=True)
    many = config_class("itemknn")(neighbors=10_000)
    with pytest.raises(UnsupportedError, match=r"keep fewer neighbours of each item \(--neighbors"):
        check_model_fits("itemknn", many, 10, 1_000_000, cpu)


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
