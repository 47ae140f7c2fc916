"""The metrics worked out by hand on their page equal the code's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foretaste.data import HeldOut, Histories
from foretaste.evaluation.evaluator import evaluate
from foretaste.models.base import RecommenderModel, UserState
from foretaste.ops.histories import HistoryTensors
from tests.docs.pages import page

CATALOGUE = "ABCDEF"
ITEMS = CATALOGUE + "G"
"""Training never saw the last item."""


def example() -> list[list[list[str]]]:
    """The two tables of the section: the ranked items and the metrics."""
    rows = page("metrics.md").rows("A worked example")
    return [[row for row in rows if len(row) == width] for width in (4, 7)]


class AsWritten(RecommenderModel):
    """A model with the page's scores."""

    name = "example"

    def __init__(self, score_UI: Tensor) -> None:
        super().__init__(None, num_users=len(score_UI), num_items=score_UI.shape[1])
        self.score_UI = score_UI

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor, ...]:
        return (user_index_B,)

    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _score_catalogue(self, state: UserState) -> Tensor:
        (user_index_B,) = state.parts
        assert isinstance(user_index_B, Tensor)
        return self.score_UI[user_index_B]

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        raise NotImplementedError


def histories(cells: list[str], num_items: int) -> Histories:
    """One row per cell such as ``A, C``."""
    pairs = [
        (user, ITEMS.index(item)) for user, cell in enumerate(cells) for item in cell.split(", ")
    ]
    users, items = (np.array(column) for column in zip(*pairs, strict=True))
    return Histories.from_pairs(users, items, num_users=len(cells), num_items=num_items)


def test_the_worked_example() -> None:
    ranked, expected = example()
    scores = torch.zeros(len(ranked), len(CATALOGUE))
    for user, (_, known, _, listed) in enumerate(ranked):
        given = dict(entry.split() for entry in listed.split(", "))
        assert sorted([*given, *known.split(", ")]) == list(CATALOGUE)
        for item, score in given.items():
            scores[user, CATALOGUE.index(item)] = float(score)
    history = histories([row[1] for row in ranked], len(CATALOGUE))
    heldout = HeldOut(
        split="test",
        protocol="example",
        seed=0,
        num_train_users=3,
        num_train_items=len(CATALOGUE),
        user_index=np.arange(len(ranked), dtype=np.int32),
        history=history,
        known=history,
        target=histories([row[2] for row in ranked], len(ITEMS)),
    )
    found = evaluate(AsWritten(scores), heldout, k=(3,))
    for name, *numbers in expected:
        metric = found.metrics[name]
        ours = [*found.per_user[name], metric.value, metric.low, metric.high]
        np.testing.assert_allclose(ours, [float(text) for text in numbers], atol=5e-5)
    assert found.num_unseen_targets == 1
