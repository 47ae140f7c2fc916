from collections.abc import Callable

import numpy as np
import pytest
import torch

from foretaste.errors import SettingError, TrainingError, UnsupportedError
from foretaste.models.linear.config import EaseConfig
from foretaste.models.linear.ease import Ease
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import Definition
from foretaste.ops.histories import HistoryTensors
from tests.messages import raises
from tests.ops.cases import of_matrix

NUM_USERS, NUM_ITEMS = 60, 23


@pytest.fixture
def dense() -> np.ndarray:
    """Users' 0/1 histories; the last user's is empty and the last item has no user."""
    matrix = (np.random.default_rng(1).random((NUM_USERS, NUM_ITEMS)) < 0.3).astype(np.float64)
    matrix[-1] = 0
    matrix[:, -1] = 0
    return matrix


def fitted(matrix: np.ndarray, l2: float = 5.0, dropout: float = 0.0) -> Ease:
    model = Ease(EaseConfig(l2=l2, dropout=dropout), *matrix.shape)
    model.fit(of_matrix(matrix), lambda *progress: None)
    return model


def plain_weights(matrix: np.ndarray, l2: float) -> np.ndarray:
    """Steck's listing, written out in float64."""
    precision = np.linalg.inv(matrix.T @ matrix + l2 * np.eye(matrix.shape[1]))
    weights = precision / -np.diag(precision)
    np.fill_diagonal(weights, 0)
    return weights


@pytest.mark.parametrize("l2", [0.1, 5.0, 500.0])
def test_weights_equal_the_plain_solution(dense: np.ndarray, l2: float) -> None:
    weights = fitted(dense, l2).weight_II.numpy()
    assert np.abs(weights - plain_weights(dense, l2)).max() < 1e-6


def test_a_small_penalty_is_not_lost_among_large_counts() -> None:
    """Two items have the same 64 users; float32 has no number between 64 and 64.000004."""
    weights = fitted(np.ones((64, 2)), l2=1e-6).weight_II
    expected = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    torch.testing.assert_close(weights, expected)


def test_a_penalty_that_is_too_small_is_refused() -> None:
    with raises(TrainingError, "1e-30", "--l2"):
        fitted(np.ones((64, 2)), l2=1e-30)


def test_dropout_minimises_the_error_over_all_ways_to_drop(dense: np.ndarray) -> None:
    """With a share p dropped and the others scaled by 1 / (1 - p), Z'Z is X'X but for a diagonal
    that is 1 / (1 - p) times as large, and Z'X is X'X."""
    weights = fitted(dense, dropout=0.4).weight_II.numpy().astype(np.float64)
    dropped = dense.T @ dense + np.diag(dense.sum(0) * (1 / 0.6 - 1))
    gradient = dropped @ weights - dense.T @ dense + 5.0 * weights
    np.fill_diagonal(gradient, 0)
    assert np.abs(gradient).max() < 1e-4
    assert (np.diag(weights) == 0).all()
    assert np.abs(weights - fitted(dense).weight_II.numpy()).max() > 0.01


def test_users_in_chunks_give_the_same(dense: np.ndarray, limit: Callable[..., None]) -> None:
    together = fitted(dense)
    candidates = torch.randint(NUM_ITEMS, (NUM_USERS, 4))
    scores = together.score_candidates(together.fold_in(of_matrix(dense)), candidates)
    limit(catalogue_scores=7 * NUM_ITEMS, inverse_rows=7)
    apart = fitted(dense)
    assert torch.equal(together.weight_II, apart.weight_II)
    again = apart.score_candidates(apart.fold_in(of_matrix(dense)), candidates)
    assert torch.equal(scores, again)


def test_fitting_tells_its_progress(dense: np.ndarray) -> None:
    told: list[tuple[str, int, int]] = []
    model = Ease(EaseConfig(), *dense.shape)
    model.fit(of_matrix(dense), lambda *how_far: told.append(how_far))
    counted = [told_of[1] for told_of in told if told_of[0] == "counting pairs of items"]
    assert counted == sorted(counted)
    assert counted[-1] == NUM_ITEMS
    assert told[-1] == ("inverting", NUM_ITEMS, NUM_ITEMS)


def test_scores_are_the_summed_weights_of_the_history(dense: np.ndarray) -> None:
    model = fitted(dense)
    state = model.user_state(torch.arange(NUM_USERS), of_matrix(dense))
    scores = model.score_catalogue(state)
    expected = dense @ plain_weights(dense, 5.0)
    expected[dense.sum(1) == 0] = dense.sum(0)  # users without a history: popularity order
    assert np.abs(scores.numpy() - expected).max() < 1e-5
    candidates = torch.tensor([[3, 3, 0, NUM_ITEMS - 1]] * NUM_USERS)
    assert torch.equal(model.score_candidates(state, candidates), scores.gather(1, candidates))
    assert torch.equal(model.score_catalogue(state[5:9]), scores[5:9])


def test_similarity_is_the_weights_above_zero(dense: np.ndarray) -> None:
    model = fitted(dense)
    items = torch.tensor([4, 0])
    weight_BI = model.weight_II[items]
    assert (weight_BI < 0).any()
    expected = torch.where(weight_BI > 0, weight_BI, -torch.inf)
    assert torch.equal(model.similarity(items), expected)


def test_items_without_a_relation_to_the_history_follow_by_popularity() -> None:
    matrix = np.zeros((9, 6))
    matrix[:2, [0, 1]] = 1
    matrix[2:5, 3] = 1
    matrix[5:, 5] = 1
    matrix[5, 2] = 1
    model = fitted(matrix)
    model.weight_II[0, 4] = -1e-9
    state = model.fold_in(of_matrix(np.array([[1.0, 0, 0, 0, 0, 0]])))
    (scores,) = model.score_catalogue(state)
    # 1 has the same users; 5, 3, 2 have none of them, in order of users; 4 has a negative weight.
    assert [item for item in scores.argsort(descending=True).tolist() if item != 0] == [
        1,
        5,
        3,
        2,
        4,
    ]
    exported = model.scorer(known_users=False)(torch.eye(6)[:1], None)
    assert torch.equal(exported[0], scores)


def test_a_catalogue_too_large_is_refused() -> None:
    cpu, config = torch.device("cpu"), EaseConfig(neighbors="all")
    with raises(UnsupportedError, "ease", 10, "3,000,000", config, "33,527.6 GiB", "--neighbors"):
        check_model_fits(Definition("ease", config, 10, 3_000_000), cpu)


def test_the_memory_of_fitting_is_noted_beforehand() -> None:
    model = Ease(EaseConfig(neighbors="all"), 10, 9_000)
    size = "inverting a 9,000 × 9,000 matrix, which takes about {} of memory"
    for num_entries, memory in ((0, "1.2 GiB"), (20_000_000, "2.2 GiB")):
        item_N = torch.zeros(num_entries, dtype=torch.int32)
        histories = HistoryTensors(torch.zeros(11, dtype=torch.int64), item_N, 9_000)
        assert model.fitting_note(histories) == size.format(memory)


def test_l2_must_be_positive() -> None:
    with raises(SettingError, "l2", 0.0):
        EaseConfig(l2=0.0)
