"""Small held-out parts and a model whose scores are given, for tests of evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from foretaste.data.dataset import HeldOut
from foretaste.data.histories import Histories
from foretaste.models.base import RecommenderModel, UserState
from foretaste.ops.histories import HistoryTensors


class TableModel(RecommenderModel):
    """Known users are scored by their row of a table, new ones by the row after the last."""

    name = "table"

    def __init__(self, score_UI: Tensor, num_users: int | None = None) -> None:
        super().__init__(None, len(score_UI) if num_users is None else num_users, score_UI.shape[1])
        self.register_buffer("score_UI", score_UI)
        self.num_folded_in = 0

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor]:
        return (user_index_B,)

    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        self.num_folded_in += len(histories)
        return (torch.full((len(histories),), self.num_users),)

    def _score_catalogue(self, state: UserState) -> Tensor:
        return self.score_UI[state.parts[0]]

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self._score_catalogue(state).gather(1, item_index_BK)


def histories(rows: Sequence[Sequence[int]], num_items: int) -> Histories:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    items = np.array([item for row in rows for item in row], dtype=np.int64)
    return Histories.from_pairs(users, items, num_users=len(rows), num_items=num_items)


def held_out(
    history: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    *,
    num_items: int,
    num_all_items: int | None = None,
    known: Sequence[Sequence[int]] | None = None,
    first_user: int = 0,
    split: str = "test",
    num_train_users: int | None = None,
    num_train_items: int | None = None,
) -> HeldOut:
    """Users ``first_user``, ``first_user + 1``, ... with these items; by default training had all
    of them."""
    last_user = first_user + len(target)
    return HeldOut(
        split=split,
        protocol="leave-one-out",
        seed=1,
        num_train_users=last_user if num_train_users is None else num_train_users,
        num_train_items=num_items if num_train_items is None else num_train_items,
        user_index=np.arange(first_user, last_user, dtype=np.int32),
        history=histories(history, num_items),
        known=histories(history if known is None else known, num_items),
        target=histories(target, num_all_items or num_items),
    )


def random_held_out(
    generator: np.random.Generator, *, num_users: int, num_items: int, most_targets: int
) -> HeldOut:
    """Users with 1 to 5 known items and 1 to ``most_targets`` others held out."""
    history, target = [], []
    for _ in range(num_users):
        items = generator.permutation(num_items)
        num_known = int(generator.integers(1, 6))
        num_targets = int(generator.integers(1, most_targets + 1))
        history.append(items[:num_known].tolist())
        target.append(items[num_known : num_known + num_targets].tolist())
    return held_out(history, target, num_items=num_items)
