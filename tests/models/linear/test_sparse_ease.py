"""EASE with a few neighbours of each item: beside a plain solution, the dense form, and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.errors import SettingError, TrainingError, UnsupportedError
from foretaste.models.linear import pairs
from foretaste.models.linear.config import EaseConfig
from foretaste.models.linear.ease import Ease
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import Definition, build_model
from foretaste.ops.histories import HistoryTensors
from tests.messages import raises, says
from tests.models.linear.conftest import NUM_ITEMS
from tests.models.linear.tables import neighbor_weights
from tests.ops.cases import of_matrix

L2, DROPOUT = 3.0, 0.3
CPU = torch.device("cpu")


def fitted(
    matrix: np.ndarray, num_neighbors: int, *, l2: float = L2, dropout: float = DROPOUT
) -> Ease:
    config = EaseConfig(neighbors=num_neighbors, l2=l2, dropout=dropout, user_power=0.0)
    model = build_model("ease", config, *matrix.shape)
    assert isinstance(model, Ease)
    model.fit(of_matrix(matrix), lambda *progress: None)
    return model


def weights_of(model: Ease) -> Tensor:
    """All weights: the scores of histories of one item each."""
    return model._sum_weights(of_matrix(np.eye(model.num_items)), None)


def candidates_of(gram: np.ndarray, target: int, num_neighbors: int) -> list[int]:
    """Candidates sorted by the criterion, rounded so that ties are ties, and by index."""
    users_of = np.maximum(np.diag(gram), 1)
    found = [item for item in range(len(gram)) if item != target and gram[item, target]]
    shared = gram[:, target] / np.sqrt(users_of)
    return sorted(found, key=lambda item: (-shared[item].round(9), item))[:num_neighbors]


def plain_weights(matrix: np.ndarray, num_neighbors: int) -> np.ndarray:
    """Solve one system after another of the whole Gram matrix."""
    gram = matrix.T @ matrix
    weights = np.zeros_like(gram)
    for target in range(len(gram)):
        chosen = candidates_of(gram, target, num_neighbors)
        penalty = L2 + DROPOUT / (1 - DROPOUT) * np.diag(gram)[chosen]
        system = gram[np.ix_(chosen, chosen)] + np.diag(penalty)
        weights[chosen, target] = np.linalg.solve(system, gram[chosen, target])
    return weights


@pytest.mark.parametrize("num_neighbors", [1, 4, 9, NUM_ITEMS - 2])
def test_weights_solve_for_the_candidates_of_each_item(
    dense: np.ndarray, num_neighbors: int
) -> None:
    found = weights_of(fitted(dense, num_neighbors)).numpy()
    assert np.abs(found - plain_weights(dense, num_neighbors)).max() < 1e-6
    assert ((found != 0).sum(0) <= num_neighbors).all()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_with_all_items_as_candidates_it_is_the_dense_form(dropout: float) -> None:
    """Every two items share a user, because other items are no candidates."""
    matrix = (np.random.default_rng(5).random((200, NUM_ITEMS)) < 0.4).astype(np.float64)
    assert (matrix.T @ matrix > 0).all()
    whole = Ease(EaseConfig(l2=L2, dropout=dropout), *matrix.shape)
    whole.fit(of_matrix(matrix), lambda *progress: None)
    sparse = neighbor_weights(whole, of_matrix(matrix), NUM_ITEMS - 1)
    torch.testing.assert_close(torch.tensor(sparse).float(), whole.weight_II, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_neighbors", [NUM_ITEMS - 1, 1_000])
def test_neighbours_that_are_all_others_are_the_dense_form(
    num_neighbors: int, dense: np.ndarray
) -> None:
    whole = Ease(EaseConfig(neighbors="all", l2=L2, dropout=DROPOUT, user_power=0.0), *dense.shape)
    whole.fit(of_matrix(dense), lambda *progress: None)
    model = fitted(dense, num_neighbors)
    assert torch.equal(model.weight_II, whole.weight_II)


def test_the_first_among_equal_candidates_are_taken() -> None:
    """2 users in 8 and 1 user in 2 are the same share: 4 / 8 and 1 / 2."""
    matrix = np.zeros((30, 7))
    matrix[:3, 0] = 1
    matrix[:2, 5] = matrix[10:16, 5] = 1
    matrix[2, 3] = matrix[20, 3] = 1
    matrix[0, 4] = matrix[21, 4] = 1
    for num_neighbors, expected in ((1, [3]), (2, [3, 4]), (3, [3, 4, 5]), (4, [3, 4, 5])):
        found = weights_of(fitted(matrix, num_neighbors))[:, 0]
        assert found.nonzero()[:, 0].tolist() == expected


@pytest.mark.parametrize("num_popular", [0, 8, NUM_ITEMS])
def test_pairs_are_counted_alike_inside_and_outside_the_table(
    num_popular: int, dense: np.ndarray, monkeypatch: pytest.MonkeyPatch, limit: Callable[..., None]
) -> None:
    monkeypatch.setattr(pairs, "MOST_POPULAR", num_popular)
    limit(neighbor_numbers=1)
    assert np.abs(weights_of(fitted(dense, 9)).numpy() - plain_weights(dense, 9)).max() < 1e-6


def test_threads_change_nothing(
    dense: np.ndarray, monkeypatch: pytest.MonkeyPatch, limit: Callable[..., None]
) -> None:
    monkeypatch.setattr(pairs, "MOST_POPULAR", 8)
    limit(neighbor_numbers=200)
    models = []
    for number in (1, 3):
        monkeypatch.setattr("torch.get_num_threads", lambda n=number: n)
        models.append(fitted(dense, 9))
    assert torch.equal(models[0].target_M, models[1].target_M)
    assert torch.equal(models[0].weight_M, models[1].weight_M)


def test_scores_below_zero_are_scores() -> None:
    """An item without a weight is unknown: it stands between positive and negative scores."""
    rng = np.random.default_rng(2)
    matrix = (rng.random((80, 12)) < 0.3).astype(np.float64)
    matrix[:, 2] = np.where(matrix[:, 1] == 1, rng.random(80) < 0.05, matrix[:, 2])
    matrix[:, 10:] = 0
    matrix[:3, 10] = 1
    matrix[:3, :10] = 0
    model = fitted(matrix, 9, l2=1.0, dropout=0.0)
    weight_II = weights_of(model)
    history = int((weight_II < 0).sum(1).argmax())
    (scores,) = model.score_catalogue(model.fold_in(of_matrix(np.eye(12)[history : history + 1])))
    below = (weight_II[history] < 0).nonzero()[:, 0]
    assert len(below) > 1
    assert torch.equal(scores[below], weight_II[history, below])
    order = scores.argsort(descending=True).tolist()
    assert order.index(10) < order.index(11), "unknown ones by popularity"
    assert order.index(11) < min(order.index(item) for item in below.tolist())
    above = (weight_II[history] > 0).nonzero()[:, 0].tolist()
    assert max(order.index(item) for item in above) < order.index(10)
    exported = model.scorer(known_users=False)(torch.eye(12)[history : history + 1], None)
    assert torch.equal(exported[0], scores)


def test_similarity_is_the_weights_above_zero(dense: np.ndarray) -> None:
    model = fitted(dense, 12)
    weight_II = weights_of(model)
    assert (weight_II < 0).any()
    expected = torch.where(weight_II > 0, weight_II, -torch.inf)
    assert torch.equal(model.similarity(torch.arange(NUM_ITEMS)), expected)


def test_nothing_in_common_leaves_no_weights() -> None:
    model = fitted(np.eye(5), 3)
    assert (weights_of(model) == 0).all()
    (scores,) = model.score_catalogue(model.fold_in(of_matrix(np.eye(5)[:1])))
    assert (scores < 0).all()
    single = fitted(np.ones((4, 1)), 3)
    assert (weights_of(single) == 0).all()


def test_a_small_penalty_is_not_lost_and_none_is_refused() -> None:
    found = weights_of(fitted(np.ones((64, 4)), 2, l2=1e-6, dropout=0.0))
    expected = torch.tensor([[0, 0.5, 0.5, 0.5], [0.5, 0, 0.5, 0.5], [0.5, 0.5, 0, 0], [0.0] * 4])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    with raises(TrainingError, "1e-30", "--l2"):
        fitted(np.ones((64, 4)), 2, l2=1e-30, dropout=0.0)


def test_small_weights_keep_their_digits(dense: np.ndarray) -> None:
    gram = dense.T @ dense
    found = weights_of(fitted(dense, NUM_ITEMS - 2, l2=1e9, dropout=0.0)).numpy()
    np.fill_diagonal(gram, 0)
    np.testing.assert_allclose(found, gram / 1e9, rtol=1e-5)


def test_fitting_tells_its_progress(dense: np.ndarray) -> None:
    told: list[tuple[str, int, int]] = []
    model = build_model("ease", EaseConfig(neighbors=4), *dense.shape)
    assert isinstance(model, Ease)
    model.fit(of_matrix(dense), lambda *how_far: told.append(how_far))
    assert told[0][0] == "counting pairs of items"
    assert told[-1] == ("solving for weights", NUM_ITEMS, NUM_ITEMS)


def test_a_million_items_fit_although_all_pairs_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_: 4 * 2**30)
    check_model_fits(
        Definition("ease", EaseConfig(neighbors=100), 10**6, 10**6), CPU, to_train=True
    )
    many = EaseConfig(neighbors=10_000)
    with raises(UnsupportedError, "1,000,000", many, "153.9 GiB", "4.0 GiB", "--neighbors"):
        check_model_fits(Definition("ease", many, 10**6, 10**6), CPU, to_train=True)
    item_N = torch.zeros(10**6, dtype=torch.int32)
    histories = HistoryTensors(torch.zeros(1, dtype=torch.int64), item_N, 41_000)
    model = build_model("ease", EaseConfig(neighbors=100), 10**6, 41_000)
    says(model.fitting_note(histories), 100, "41,000", "494 MiB")  # type: ignore[attr-defined]


def test_neighbors_must_be_at_least_one() -> None:
    with raises(SettingError, "neighbors", 0):
        EaseConfig(neighbors=0)


def test_settings_depend_on_the_number_of_weights_unless_given() -> None:
    features = {"feature_weight": 30.0, "feature_power": 0.5}
    whole = EaseConfig(neighbors="all", l2=200.0, dropout=0.5, user_power=0.0, **features)
    few = EaseConfig(neighbors=100, l2=20.0, dropout=0.5, user_power=0.3, **features)
    assert EaseConfig().resolved(6_000) == whole
    assert EaseConfig().resolved(6_001) == few
    given = EaseConfig(neighbors=50, l2=3.0, dropout=0.0, user_power=0.1, **features)
    assert given.resolved(52) == given
    assert given.resolved(51) == replace(given, neighbors="all"), "which these are"
    assert EaseConfig(neighbors=50).resolved(51) == whole
