import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretaste.errors import SettingError
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.metrics import (
    TargetRanks,
    hr,
    mrr,
    ndcg,
    recall,
    recall_all,
    user_metrics,
)
from tests.evaluation.worlds import TableModel, random_held_out
from tests.messages import Named, raises

OF_SCORES = {"hr": hr, "ndcg": ndcg, "recall": recall, "recall_all": recall_all, "mrr": mrr}


def ranks(rows: list[list[tuple[int, int]]], num_targets: list[int] | None = None) -> TargetRanks:
    """One list of (above, tied) per user."""
    flat = [place for row in rows for place in row]
    return TargetRanks(
        user_T=np.repeat(np.arange(len(rows)), [len(row) for row in rows]),
        above_T=np.array([above for above, _ in flat], dtype=np.int64),
        tied_T=np.array([tied for _, tied in flat], dtype=np.int64),
        item_T=np.arange(len(flat)),
        num_targets_U=np.array(num_targets or [len(row) for row in rows]),
    )


def discount(place: int) -> float:
    return 1 / math.log2(1 + place)


def test_several_targets_and_the_two_recalls() -> None:
    # Four targets in ranks 1, 3, 4 and 9.
    found = user_metrics(ranks([[(0, 1), (2, 1), (3, 1), (8, 1)]]), (3, 10))
    assert found["recall@3"] == pytest.approx([2 / 3])
    assert found["recall_all@3"] == pytest.approx([2 / 4])
    ideal = discount(1) + discount(2) + discount(3)
    assert found["ndcg@3"] == pytest.approx([(discount(1) + discount(3)) / ideal])
    ideal += discount(4)
    gained = discount(1) + discount(3) + discount(4) + discount(9)
    assert found["ndcg@10"] == pytest.approx([gained / ideal])
    assert found["recall@10"].tolist() == [1]
    assert found["mrr@10"].tolist() == [1]


def test_targets_unseen_in_training_are_misses() -> None:
    found = user_metrics(ranks([[(0, 1)], []], num_targets=[2, 1]), (10,))
    assert found["recall@10"].tolist() == [0.5, 0]
    assert found["ndcg@10"] == pytest.approx([1 / (1 + discount(2)), 0])
    assert found["hr@10"].tolist() == [1, 0]
    assert found["mrr@10"].tolist() == [1, 0]


def metrics_of_order(is_target: list[bool], num_targets: int, k: int) -> dict[str, float]:
    hits = [place for place, hit in enumerate(is_target[:k], start=1) if hit]
    ideal = sum(discount(place) for place in range(1, min(k, num_targets) + 1))
    return {
        "hr": float(bool(hits)),
        "ndcg": sum(map(discount, hits)) / ideal,
        "recall": len(hits) / min(k, num_targets),
        "recall_all": len(hits) / num_targets,
        "mrr": 1 / hits[0] if hits else 0.0,
    }


def brute_force(scores: list[int], is_target: list[bool], k: int) -> dict[str, float]:
    """Averages over every order of the candidates that their scores allow."""
    orders = [
        order
        for order in itertools.permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    found = [
        metrics_of_order([is_target[item] for item in order], sum(is_target), k) for order in orders
    ]
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


@settings(max_examples=60, deadline=None)
@given(
    candidates=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
    k=st.integers(1, 7),
)
def test_closed_forms_equal_the_mean_over_all_orders(
    candidates: list[tuple[int, bool]], k: int
) -> None:
    scores = [score for score, _ in candidates]
    is_target = [target for _, target in candidates[:-1]] + [True]
    of_targets = [
        (sum(other > score for other in scores), scores.count(score))
        for score, target in zip(scores, is_target, strict=True)
        if target
    ]
    found = user_metrics(ranks([of_targets]), (k,))
    for name, value in brute_force(scores, is_target, k).items():
        assert found[f"{name}@{k}"][0] == pytest.approx(value, abs=1e-12), name


def test_many_users_at_once_equal_one_by_one(limit: Callable[..., None]) -> None:
    generator = np.random.default_rng(3)
    rows = [
        [(int(above), int(tied)) for above, tied in generator.integers(1, 9, size=(size, 2))]
        for size in generator.integers(1, 5, size=50)
    ]
    together = user_metrics(ranks(rows), (2, 5))
    limit(rank_cells=35)
    in_pieces = user_metrics(ranks(rows), (2, 5))
    for name, values in together.items():
        assert values.tolist() == in_pieces[name].tolist()
        assert values.tolist() == [user_metrics(ranks([row]), (2, 5))[name][0] for row in rows]


def test_metrics_of_scores_worked_by_hand() -> None:
    # First row: targets in ranks 2 and 4. Second row: the target has one among three equal scores
    # in ranks 2 to 4.
    scores, targets = [[0.9, 0.7, 0.5, 0.2], [0.8, 0.6, 0.6, 0.6]], [[1, 3], [2]]
    assert hr(scores, targets, 3) == pytest.approx([1, 2 / 3])
    assert mrr(scores, targets, 3) == pytest.approx([1 / 2, (1 / 2 + 1 / 3) / 3])
    assert recall(scores, targets, 3) == pytest.approx([1 / 2, 2 / 3])
    assert recall_all(scores, targets, 1).tolist() == [0, 0]
    ideal, tied = discount(1) + discount(2), (discount(2) + discount(3)) / 3
    assert ndcg(scores, targets, 3) == pytest.approx([discount(2) / ideal, tied])
    hidden = [[-math.inf, 2, 1], [1, -math.inf, -math.inf]]
    assert mrr(hidden, [[2], [1]], 3).tolist() == [0.5, 0]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), num_levels=st.sampled_from([1, 3, 1000]), k=st.integers(1, 9)
)
def test_metrics_of_scores_equal_evaluate(seed: int, num_levels: int, k: int) -> None:
    generator = np.random.default_rng(seed)
    heldout = random_held_out(generator, num_users=8, num_items=12, most_targets=4)
    scores = generator.integers(num_levels, size=(8, 12)).astype(np.float32)
    evaluated = evaluate(TableModel(torch.tensor(scores)), heldout, k=(k,))
    scores[heldout.known.row_index(), heldout.known.item_index] = -np.inf
    bounds = heldout.target.offsets[1:-1]
    targets = np.split(heldout.target.item_index, bounds)
    for name, metric in OF_SCORES.items():
        assert metric(scores, targets, k).tolist() == evaluated.per_user[f"{name}@{k}"].tolist()


@pytest.mark.parametrize(
    ("scores", "targets", "k", "named"),
    [
        ([[1, 2]], [[0], [1]], 1, (1, 2, 2)),
        ([[1, math.nan]], [[0]], 1, ("none of them",)),
        ([[1, 2]], [[]], 1, ("one or more",)),
        ([[1, 2]], [[-1]], 1, (0, 1)),
        ([[1, 2]], [[0]], 0, ("k",)),
    ],
)
def test_scores_that_cannot_be_ranked(
    scores: list[list[float]], targets: list[list[int]], k: int, named: Named
) -> None:
    with raises(SettingError, *named):
        ndcg(scores, targets, k)
