"""Lists of what may be recommended, for many users, in batches of bounded memory.

Shape suffixes: B users, I items of the catalogue, C items scored, K places of a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste._util.memory import free_bytes, require_memory
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import ABSENT, scoring, to_device, top_k
from foretaste.models.base import RecommenderModel, UserState
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.precision_flags import products_as_set
from foretaste.recommend.shelf import Shelf, reason_for_fewer

_SCORE_BYTES = {"cpu": 64 * 2**20, "cuda": 512 * 2**20}
"""Scores of one batch of users; masks and selection take a few times that."""

_MAX_ROWS = 8192

_ALWAYS_FREE = 1 << 24
_BYTES_PER_PLACE = 12
"""An item index, int64, and a score, float32."""


@dataclass(frozen=True, eq=False)
class Lists:
    """The best items of B users: ``item_index[b, :length[b]]``, best first."""

    item_index: NDArray[np.int64]
    """[B, K]"""
    score: NDArray[np.float32]
    """[B, K]"""
    length: NDArray[np.int64]
    """Number of places filled, [B]."""

    @classmethod
    def empty(cls, num_rows: int, num_places: int) -> Lists:
        """Lists to be filled by ``put``; UnsupportedError where there is no room for so many."""
        needed = num_rows * num_places * _BYTES_PER_PLACE
        if needed > _ALWAYS_FREE:  # asking the system takes a fifth of a millisecond
            require_memory(
                needed,
                free_bytes(),
                f"a table of {num_rows:,} lists of {num_places:,} items",
                "lower k, or ask for fewer lists at once",
            )
        return cls(
            np.zeros((num_rows, num_places), dtype=np.int64),
            np.zeros((num_rows, num_places), dtype=np.float32),
            np.zeros(num_rows, dtype=np.int64),
        )

    @classmethod
    def best(cls, score_BC: Tensor, num_places: int, item_index_C: Tensor | None = None) -> Lists:
        """The best columns of each row, by score, then column; what is `ABSENT` is not listed.

        Columns are items, or stand for ``item_index_C``.
        """
        if num_places == 0:
            return cls.empty(len(score_BC), 0)
        top = top_k(score_BC, num_places)
        item_index_BK = top.candidate_BK
        if item_index_C is not None:
            item_index_BK = item_index_C[item_index_BK]
        length_B = (top.score_BK != ABSENT).sum(dim=1)
        return cls(item_index_BK.cpu().numpy(), top.score_BK.cpu().numpy(), length_B.cpu().numpy())

    def put(self, rows: NDArray[np.int64], part: Lists) -> None:
        """Fill the given rows from ``part``, one for one."""
        self.item_index[rows] = part.item_index
        self.score[rows] = part.score
        self.length[rows] = part.length

    def filled(self) -> NDArray[np.bool_]:
        """Which places are filled, [B, K]."""
        places: NDArray[np.bool_] = np.arange(self.item_index.shape[1]) < self.length[:, None]
        return places


@dataclass(frozen=True, eq=False)
class Made:
    """Lists of some users, and what they were made of."""

    lists: Lists
    num_known: NDArray[np.int64]
    """Items of each history that training saw, [B]."""
    own: list[list[str]]
    """What to say of each history, nothing of most; [B]."""

    def counts(self, k: int) -> dict[str, int]:
        """What an `Export` counts of lists that were to have ``k`` items."""
        is_known = self.num_known > 0
        has_reason = np.array([bool(why) for why in self.own], dtype=bool)
        return {
            "num_rows": int(self.lists.length.sum()),
            "num_short_lists": int(np.count_nonzero(self.lists.length < k)),
            "num_popularity_lists": int(np.count_nonzero(~is_known)),
            "num_partial_histories": int(np.count_nonzero(is_known & has_reason)),
        }


class ListMaker:
    """Makes lists of k items of one shelf with one model.

    ``num_places`` is the length of a full list, ``num_columns`` the scores computed per user.
    """

    def __init__(
        self, model: RecommenderModel, shelf: Shelf, *, k: int, include_seen: bool
    ) -> None:
        self.model = model
        self.shelf = shelf
        self.k = k
        self.include_seen = include_seen
        self.num_places = min(k, shelf.size)
        self.num_columns = shelf.size if shelf.is_small else model.num_items
        allowed_I = torch.tensor(shelf.is_allowed, device=model.device)
        self._item_index_C = allowed_I.nonzero()[:, 0] if shelf.is_small else None
        self._blocked_I = ~allowed_I
        self._lowered: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What callers should know of the ids they gave, and of lists made so far."""
        return (*self.shelf.notes, *([self._lowered] if self._lowered else []))

    def make(self, histories: Histories, user_index: NDArray[np.int64] | None) -> Lists:
        """Lists for the users with these histories: rows of training, or new users if None.

        Histories hold items of the catalogue; unless ``include_seen``, these are left out.
        """
        lists = Lists.empty(len(histories), self.num_places)
        if self.num_places:
            for rows in batches(len(histories), self.num_columns, self.model.device):
                users = None if user_index is None else user_index[rows]
                lists.put(rows, self._make_batch(histories.rows(rows), users))
        return lists

    def reasons(self, lists: Lists, own: Sequence[Sequence[str]]) -> list[list[str]]:
        """What to say of each list: why it is short, its ``own`` reasons, notes on all."""
        size, contents = self.shelf.size, self.shelf.contents
        fewer = [reason_for_fewer(int(length), self.k, size, contents) for length in lists.length]
        return [
            [*([short] if short else []), *reasons, *self.notes]
            for short, reasons in zip(fewer, own, strict=True)
        ]

    def _make_batch(self, histories: Histories, user_index: NDArray[np.int64] | None) -> Lists:
        model = self.model
        tensors = to_device(histories, model.device)
        with scoring(model), products_as_set(model.device) as self._lowered:
            if user_index is None:
                state = model.fold_in(tensors)
            else:
                state = model.user_state(torch.tensor(user_index, device=model.device), tensors)
            if self._item_index_C is None:
                score_BC = self._score_catalogue(state, tensors)
            else:
                score_BC = self._score_few(state, tensors, self._item_index_C)
        return Lists.best(score_BC, self.num_places, self._item_index_C)

    def _score_catalogue(self, state: UserState, histories: HistoryTensors) -> Tensor:
        absent_BI = self._blocked_I.repeat(len(state), 1)
        if not self.include_seen:
            absent_BI[histories.row_index(), histories.item_index.long()] = True
        return self.model.score_catalogue(state).masked_fill(absent_BI, ABSENT)

    def _score_few(
        self, state: UserState, histories: HistoryTensors, item_index_C: Tensor
    ) -> Tensor:
        score_BC = self.model.score_candidates(state, item_index_C.expand(len(state), -1))
        if self.include_seen:
            return score_BC
        item_index_N = histories.item_index.long()
        column_N = torch.searchsorted(item_index_C, item_index_N).clamp_(max=len(item_index_C) - 1)
        is_listed_N = item_index_C[column_N] == item_index_N
        absent_BC = torch.zeros_like(score_BC, dtype=torch.bool)
        absent_BC[histories.row_index()[is_listed_N], column_N[is_listed_N]] = True
        return score_BC.masked_fill(absent_BC, ABSENT)


def batches(num_rows: int, num_columns: int, device: torch.device) -> Iterator[NDArray[np.int64]]:
    """Consecutive rows, so many at a time that their scores fit the memory set aside for them."""
    budget = _SCORE_BYTES.get(device.type, _SCORE_BYTES["cpu"])
    step = max(1, min(_MAX_ROWS, budget // (4 * max(1, num_columns))))
    for start in range(0, num_rows, step):
        yield np.arange(start, min(start + step, num_rows))
