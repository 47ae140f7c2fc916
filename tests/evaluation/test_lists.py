"""Measures of lists beyond accuracy, against lists worked by hand and against brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.data.dataset import HeldOut
from foretaste.evaluation.config import LIST_METRICS
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.lists import item_groups
from foretaste.evaluation.result import Evaluation
from tests.evaluation.worlds import TableModel, held_out, histories, random_held_out


class CountedModel(TableModel):
    """Scores by a table, and the training users of each item."""

    def __init__(self, score_UI: Tensor, count_I: list[int]) -> None:
        super().__init__(score_UI)
        self.item_count_I += torch.tensor(count_I)


def measure(model: TableModel, heldout: HeldOut, **options: Any) -> Evaluation:
    return evaluate(model, heldout, **({"more": True} | options))


COUNTS = [16, 8, 4, 2, 1]
"""Among 16 users: 0, 1, 2, 3 and 4 bits. 80 % of 31 interactions are 24.8: the third item is the
last of the head and mid, so that the tail begins with the fourth."""


def test_two_lists_worked_by_hand() -> None:
    scores = torch.tensor([[5.0, 4, 3, 2, 1], [1, 2, 3, 4, 5]])
    heldout = held_out([[0], [0, 1]], [[2], [4]], num_items=5, num_train_users=16)
    model = CountedModel(scores, COUNTS)
    found = measure(model, heldout, k=(1, 2, 4)).per_user
    # The lists are 1, 2, 3, 4 and 4, 3, 2.
    assert found["novelty@2"].tolist() == [(1 + 2) / 2, (4 + 3) / 2]
    assert found["novelty@4"].tolist() == [(1 + 2 + 3 + 4) / 4, (4 + 3 + 2) / 3]
    assert found["long_tail@2"].tolist() == [0, 1]
    assert found["long_tail@4"] == pytest.approx([2 / 4, 2 / 3])
    # The histories have 16 users an item, and (16 + 8) / 2.
    assert found["popularity_lift@1"] == pytest.approx([8 / 14 - 1, 1 / 14 - 1])
    assert found["popularity_lift@4"] == pytest.approx([15 / 4 / 14 - 1, 7 / 3 / 14 - 1])


def test_groups_of_items_by_hand() -> None:
    assert item_groups(np.array([1.0, 10, 3, 1, 5])).tolist() == [2, 0, 1, 2, 1]
    # If all items are alike, no tail exists; a tie with the last item of a group joins the group.
    assert item_groups(np.full(5, 4.0)).tolist() == [0] * 5
    assert item_groups(np.array([2.0, 2, 1, 1, 1, 1])).tolist() == [0, 0, 1, 1, 1, 1]


def brute_force(
    scores: list[float], known: list[int], k: int, counts: list[int]
) -> dict[str, float]:
    """The measures of one list among 23, by their definitions; popularity in place of its lift."""
    items = [item for item in range(len(scores)) if item not in known]
    listed = sorted(items, key=lambda item: (-scores[item], item))[:k]
    head = sorted(range(len(counts)), key=lambda item: -counts[item])
    while sum(counts[item] for item in head[:-1]) >= 0.8 * sum(counts):
        head.pop()
    least = counts[head[-1]]
    return {
        "novelty": float(np.mean([-math.log2(counts[item] / 23) for item in listed])),
        "long_tail": float(np.mean([counts[item] < least for item in listed])),
        "popularity_lift": float(np.mean([counts[item] for item in listed])),
    }


def test_random_lists_against_brute_force() -> None:
    generator = np.random.default_rng(5)
    heldout = random_held_out(generator, num_users=23, num_items=14, most_targets=3)
    scores = torch.randint(5, (23, 14)).float()
    counts = generator.integers(1, 17, 14).tolist()
    model = CountedModel(scores, counts)
    found = measure(model, heldout, k=(1, 3, 9, 100))
    popularity = [
        np.mean([counts[item] for item in heldout.history[user : user + 1].item_index])
        for user in range(23)
    ]
    for k in (1, 3, 9, 100):
        expected = [
            brute_force(scores[user].tolist(), known.item_index.tolist(), k, counts)
            for user, known in ((user, heldout.known[user : user + 1]) for user in range(23))
        ]
        for kind in LIST_METRICS:
            values = np.array([measures[kind] for measures in expected])
            if kind == "popularity_lift":
                values = values / np.mean(popularity) - 1
            assert found.per_user[f"{kind}@{k}"] == pytest.approx(values, abs=1e-6), kind
            assert found[f"{kind}@{k}"] == pytest.approx(values.mean(), abs=1e-6)
    for batch in (1, 4):
        apart = measure(model, heldout, k=(1, 3, 9, 100), evaluation_batch=batch)
        assert apart.metrics == found.metrics


def test_sampled_candidates_say_nothing_of_lists() -> None:
    heldout = random_held_out(np.random.default_rng(2), num_users=9, num_items=12, most_targets=2)
    model = CountedModel(torch.rand(9, 12), [1] * 12)
    found = measure(model, heldout, k=(3,), candidates="sampled-4")
    assert not any(name.partition("@")[0] in LIST_METRICS for name in found.metrics)
    assert {group.by for group in found.groups} == {"activity", "popularity"}


def test_empty_lists_and_histories_count_as_nothing() -> None:
    model = CountedModel(torch.rand(2, 3), [4, 2, 1])
    # User 0 has all items, and a target that training never saw; user 1 has no items.
    heldout = held_out([[], []], [[3], [0]], num_items=3, num_all_items=4)
    heldout = replace(heldout, known=histories([[0, 1, 2], []], 3))
    found = measure(model, heldout, k=(2,))
    for kind in ("novelty", "long_tail"):
        assert found.per_user[f"{kind}@2"][0] == 0
    assert "popularity_lift@2" not in found.metrics, "nobody has a history to compare with"
