"""Ranking what may be recommended for many users, in batches of bounded memory.

Shape suffixes: B users, I items of the catalogue, C items scored, K places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.data.histories import Histories
from foretaste.models.base import RecommenderModel, UserState
from foretaste.ops.histories import HistoryTensors
from foretaste.recommend.ranking import BLOCKED, top_columns
from foretaste.recommend.shelf import Shelf, reason_for_fewer

_SCORE_BYTES = {"cpu": 64 * 2**20, "cuda": 512 * 2**20}
"""Scores of one batch of users; masks and sorting take about as much again."""

_MAX_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Ranked:
    """The best items of B users: ``item_index[b, :length[b]]``, best first."""

    item_index: NDArray[np.int64]
    """[B, K]"""
    score: NDArray[np.float32]
    """[B, K]"""
    length: NDArray[np.int64]
    """Number of places filled, [B]."""

    @classmethod
    def empty(cls, num_rows: int, num_places: int) -> Ranked:
        """Rows to be filled by ``put``."""
        return cls(
            np.zeros((num_rows, num_places), dtype=np.int64),
            np.zeros((num_rows, num_places), dtype=np.float32),
            np.zeros(num_rows, dtype=np.int64),
        )

    @classmethod
    def of(cls, item_index_BK: Tensor, score_BK: Tensor) -> Ranked:
        """Take what was ranked off the device; blocked items, which come last, do not count."""
        length_B = (score_BK != BLOCKED).sum(dim=1)
        return cls(item_index_BK.cpu().numpy(), score_BK.cpu().numpy(), length_B.cpu().numpy())

    def put(self, rows: NDArray[np.int64], part: Ranked) -> None:
        """Fill the given rows from ``part``, one for one."""
        self.item_index[rows] = part.item_index
        self.score[rows] = part.score
        self.length[rows] = part.length

    def filled(self) -> NDArray[np.bool_]:
        """Which places are filled, [B, K]."""
        places: NDArray[np.bool_] = np.arange(self.item_index.shape[1]) < self.length[:, None]
        return places


class Ranker:
    """Ranks the items of one shelf with one model.

    ``num_places`` is the length of a full list, ``num_columns`` the scores computed per user.
    """

    def __init__(
        self, model: RecommenderModel, shelf: Shelf, *, k: int, include_seen: bool
    ) -> None:
        self.model = model
        self.shelf = shelf
        self.k = k
        self.num_places = min(k, shelf.size)
        self.include_seen = include_seen
        allowed_I = torch.tensor(shelf.is_allowed, device=model.device)
        self._item_index_C = allowed_I.nonzero()[:, 0] if shelf.is_small else None
        self._blocked_C = None if shelf.is_small or shelf.is_whole else ~allowed_I
        self._column_of_item_I = allowed_I.cumsum(0).sub_(1).masked_fill_(~allowed_I, -1)
        self.num_columns = shelf.size if shelf.is_small else model.num_items

    def rank(self, histories: Histories, user_index: NDArray[np.int64] | None) -> Ranked:
        """Rank for the users with these histories: rows of training, or new users if None.

        Histories hold items of the catalogue; unless ``include_seen``, these are left out.
        """
        ranked = Ranked.empty(len(histories), self.num_places)
        if self.num_places:
            for rows in batches(len(histories), self.num_columns, self.model.device):
                users = None if user_index is None else user_index[rows]
                ranked.put(rows, self._rank_batch(histories.rows(rows), users))
        return ranked

    def reason(self, length: int) -> list[str]:
        """What to say of a list of ``length`` items: nothing when it is as long as asked."""
        fewer = reason_for_fewer(length, self.k, self.shelf.size, self.shelf.contents)
        return [fewer] if fewer else []

    def _rank_batch(self, histories: Histories, user_index: NDArray[np.int64] | None) -> Ranked:
        model = self.model
        tensors = HistoryTensors.from_numpy(
            histories.offsets, histories.item_index, histories.num_items, model.device
        )
        with torch.no_grad():
            if user_index is None:
                state = model.fold_in(tensors)
            else:
                state = model.user_state(torch.tensor(user_index, device=model.device), tensors)
            scores_BC = self._block(self._scores(state), tensors)
        column_BK, score_BK = top_columns(scores_BC, self.num_places)
        if self._item_index_C is not None:
            column_BK = self._item_index_C[column_BK]
        return Ranked.of(column_BK, score_BK)

    def _scores(self, state: UserState) -> Tensor:
        if self._item_index_C is None:
            return self.model.score_catalogue(state)
        return self.model.score_candidates(state, self._item_index_C.expand(len(state), -1))

    def _block(self, scores_BC: Tensor, histories: HistoryTensors) -> Tensor:
        if self._blocked_C is not None:
            scores_BC = scores_BC.masked_fill(self._blocked_C, BLOCKED)
        if self.include_seen:
            return scores_BC
        row_N, column_N = histories.row_index(), histories.item_index.long()
        if self._item_index_C is not None:
            column_N = self._column_of_item_I[column_N]
            row_N, column_N = row_N[column_N >= 0], column_N[column_N >= 0]
        seen_BC = torch.zeros_like(scores_BC, dtype=torch.bool)
        seen_BC[row_N, column_N] = True
        return scores_BC.masked_fill(seen_BC, BLOCKED)


def batches(num_rows: int, num_columns: int, device: torch.device) -> Iterator[NDArray[np.int64]]:
    """Consecutive rows, so many at a time that their scores fit the memory set aside for them."""
    budget = _SCORE_BYTES.get(device.type, _SCORE_BYTES["cpu"])
    step = max(1, min(_MAX_ROWS, budget // (4 * max(1, num_columns))))
    for start in range(0, num_rows, step):
        yield np.arange(start, min(start + step, num_rows))
