import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretaste.evaluation.metrics import TargetRanks, user_metrics


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


def test_many_users_at_once_equal_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    rows = [
        [(int(above), int(tied)) for above, tied in generator.integers(1, 9, size=(size, 2))]
        for size in generator.integers(1, 5, size=50)
    ]
    together = user_metrics(ranks(rows), (2, 5))
    monkeypatch.setattr("foretaste.evaluation.metrics._CELLS_AT_ONCE", 35)
    in_pieces = user_metrics(ranks(rows), (2, 5))
    for name, values in together.items():
        assert values.tolist() == in_pieces[name].tolist()
        assert values.tolist() == [user_metrics(ranks([row]), (2, 5))[name][0] for row in rows]
