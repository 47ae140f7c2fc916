"""The k best items for users, and the k most similar items, in batches of bounded memory.

Shape suffixes: B users or items of the question, I items of the catalogue, C scored items, K ranks
of a list, N entries of all histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste._util.memory import require_memory
from foretaste._util.system import free_bytes
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import (
    ABSENT,
    mask_items_,
    scoring,
    state_of,
    to_device,
    top_k,
    user_batches,
    users_at_once,
)
from foretaste.models.base import RecommenderModel, UserState
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.precision_flags import float32_products
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import NOTHING_KNOWN
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.max_per import MaxPer

ALWAYS_FREE = 1 << 24
_BYTES_PER_ENTRY = 12
"""An item index, int64, and a score, float32."""


@dataclass(frozen=True, eq=False)
class TopItems:
    """The best items of B lists: ``item_index[b, :length[b]]``, best first."""

    item_index: NDArray[np.int64]
    """[B, K]"""
    score: NDArray[np.float32]
    """[B, K]"""
    length: NDArray[np.int64]
    """Number of items in each list, [B]."""
    num_known: NDArray[np.int64]
    """Number of items of each history; 0 if the model knows nothing of them, [B]."""
    remarks: Sequence[Sequence[str]]
    """Remarks on each history, [B]; mostly empty."""
    because: Sequence[TopItems | None] | None = None
    """For each item of each list the nearest items of the history; None if not asked for or not
    known."""

    @classmethod
    def empty(
        cls, length: int, num_known: NDArray[np.int64], remarks: Sequence[Sequence[str]]
    ) -> TopItems:
        """Empty lists of up to ``length`` items; UnsupportedError if memory is too small."""
        num_rows = len(num_known)
        needed = num_rows * length * _BYTES_PER_ENTRY
        if needed > ALWAYS_FREE:  # asking the system for free memory takes 0.2 ms
            require_memory(
                needed,
                free_bytes(),
                f"a table of {num_rows:,} lists of {length:,} items",
                "lower k, or ask for fewer lists at once",
            )
        return cls(
            np.zeros((num_rows, length), dtype=np.int64),
            np.zeros((num_rows, length), dtype=np.float32),
            np.zeros(num_rows, dtype=np.int64),
            num_known,
            remarks,
        )

    def fill(
        self,
        rows: NDArray[np.int64] | slice,
        score_BC: Tensor,
        item_index_C: Tensor | None = None,
        max_per: MaxPer | None = None,
    ) -> None:
        """Fill lists ``rows`` with the best columns of each row of scores, ties in column order.

        ``max_per`` has the limits. Columns are items, or positions in ``item_index_C``; a column of
        score `ABSENT` is not listed.
        """
        k = self.item_index.shape[1]
        if max_per is None:
            # Not `torch.topk`, which returns equal scores in any order.
            top = top_k(score_BC, k)
            score_BK, item_index_BK = top.score_BK, top.candidate_BK
        else:
            score_BK, item_index_BK = max_per.best(score_BC, k, item_index_C)
        if item_index_C is not None:
            item_index_BK = item_index_C[item_index_BK]
        self.item_index[rows] = item_index_BK.cpu().numpy()
        self.score[rows] = score = score_BK.cpu().numpy()
        # Absent columns come last, so the others are the list and their number its length.
        self.length[rows] = np.count_nonzero(score != ABSENT, axis=1)

    def __getitem__(self, rows: slice) -> TopItems:
        """Return consecutive lists."""
        return TopItems(
            self.item_index[rows],
            self.score[rows],
            self.length[rows],
            self.num_known[rows],
            self.remarks[rows],
        )

    def first(self, k: int) -> TopItems:
        """Return the first ``k`` items of each list."""
        return replace(self, length=np.minimum(self.length, k))

    def filled(self) -> NDArray[np.bool_]:
        """Return True for entries that hold an item, [B, K]."""
        is_filled: NDArray[np.bool_] = np.arange(self.item_index.shape[1]) < self.length[:, None]
        return is_filled


class UserHistories(NamedTuple):
    """Users and their histories, row by row, as input of a ranker."""

    user_index: NDArray[np.int64]
    """The model's row of each user; users beyond its rows are folded in."""
    histories: Histories
    """Histories with catalogue items only."""
    remarks: Sequence[Sequence[str]]
    """Remarks on each history; mostly empty."""
    left_out: Histories | None = None
    """Items that lists leave out: the history and the items that a user disliked. None if no user
    disliked any."""

    def rows(self, rows: NDArray[np.int64]) -> UserHistories:
        """Return some of the users."""
        remarks = [self.remarks[row] for row in rows]
        left_out = None if self.left_out is None else self.left_out.rows(rows)
        return UserHistories(self.user_index[rows], self.histories.rows(rows), remarks, left_out)


class _Ranker:
    """Ranker of one model. A list can hold ``size`` items."""

    def __init__(self, model: RecommenderModel, k: int, size: int) -> None:
        self.model = model
        self.k = k
        self._size = size
        self._length = min(k, size)
        self._num_scored = model.num_items

    def batches(self, num_rows: int) -> Iterator[slice]:
        """Slices of consecutive rows whose scores fit into memory."""
        at_once = users_at_once(self._num_scored, self.model.device)
        for start in range(0, num_rows, at_once):
            yield slice(start, min(start + at_once, num_rows))


def list_reasons(
    top: TopItems,
    k: int,
    size: int,
    contents: str,
    notes: Sequence[str],
    missing: str,
) -> list[list[str]]:
    """Return the reasons of each list of ``k`` out of ``size`` items, which ``contents`` names.

    ``notes`` are added to all lists. ``missing`` describes the items that are left out of lists.
    """
    reasons = []
    for length, remarks in zip(top.length.tolist(), top.remarks, strict=True):
        short = []
        if length < k:
            short = [f"only {length} of {k}: {size} {contents.format(s='' if size == 1 else 's')}"]
            if size > length:
                short[0] += f", {size - length} of them {missing}"
        reasons.append([*short, *remarks, *notes])
    return reasons


class UserRanker(_Ranker):
    """Ranker of the items of a filter, for known and new users."""

    def __init__(
        self, model: RecommenderModel, item_filter: ItemFilter, request: ListRequest
    ) -> None:
        super().__init__(model, request.k, item_filter.size)
        self._include_seen = request.include_seen
        self._max_per = item_filter.max_per
        self._penalty_I: Tensor | None = None
        self._item_index_C: Tensor | None = None
        if item_filter.size < model.num_items:
            is_allowed = item_filter.is_allowed
            if item_filter.is_small:
                index = np.flatnonzero(is_allowed)
                self._item_index_C = torch.from_numpy(index).to(model.device)
                self._num_scored = item_filter.size
            else:  # adding a penalty takes a third of the time of `masked_fill`
                penalty = np.where(is_allowed, np.float32(0), np.float32(ABSENT))
                self._penalty_I = torch.from_numpy(penalty).to(model.device)

    def rank(self, users: UserHistories, left_out: Histories | None = None) -> TopItems:
        """Return lists for users.

        Unless the request includes seen items, each list is without the user's history and what
        the user disliked; ``left_out`` replaces these.
        """
        model, user_index, histories = self.model, users.user_index, users.histories
        remarks, left_out = [*users.remarks], users.left_out if left_out is None else left_out
        top = TopItems.empty(self._length, histories.lengths(), remarks)
        if not self._length:
            return top
        at_once = users_at_once(self._num_scored, model.device)
        for rows in user_batches(user_index, model.num_users, at_once):
            tensors = to_device(histories.rows(rows), model.device)
            with scoring(model), float32_products(model.device):
                state = state_of(model, user_index[rows], tensors, model.num_users)
                is_silent = (tensors.lengths() > 0) & ~state.has_history_B
                if left_out is not None:
                    tensors = to_device(left_out.rows(rows), model.device)
                score_BC = self._score(state, tensors)
            top.fill(rows, score_BC, self._item_index_C, self._max_per)
            for row in rows[is_silent.cpu().numpy()].tolist():
                top.num_known[row] = 0
                remarks[row] = [NOTHING_KNOWN, *remarks[row]]
        return top

    def _score(self, state: UserState, left_out: HistoryTensors) -> Tensor:
        """Return scores of the catalogue or of few allowed items; `ABSENT` if left out."""
        item_index_C = self._item_index_C
        if item_index_C is None:
            score_BI = self.model.score_catalogue(state)
            if self._penalty_I is not None:
                score_BI.add_(self._penalty_I)
            return score_BI if self._include_seen else mask_items_(score_BI, left_out)
        score_BC = self.model.score_candidates(state, item_index_C.expand(len(state), -1))
        if self._include_seen:
            return score_BC
        item_index_N = left_out.item_index.long()
        column_N = torch.searchsorted(item_index_C, item_index_N).clamp_(max=len(item_index_C) - 1)
        # `searchsorted` says where an item would stand; only an item that stands there is listed.
        is_listed_N = item_index_C[column_N] == item_index_N
        absent_BC = torch.zeros_like(score_BC, dtype=torch.bool)
        absent_BC[left_out.row_index()[is_listed_N], column_N[is_listed_N]] = True
        return score_BC.masked_fill(absent_BC, ABSENT)


class SimilarItemRanker(_Ranker):
    """Ranker of the other items of the catalogue by similarity to an item.

    Items that the model does not relate to it are not listed.
    """

    def __init__(self, model: RecommenderModel, *, k: int) -> None:
        super().__init__(model, k, model.num_items - 1)

    def rank(self, item_index: NDArray[np.int64]) -> TopItems:
        """Return lists for items of the catalogue."""
        num_rows, device = len(item_index), self.model.device
        top = TopItems.empty(self._length, np.ones(num_rows, dtype=np.int64), [()] * num_rows)
        for rows in self.batches(num_rows):
            with scoring(self.model), float32_products(device):
                item_index_B = torch.tensor(item_index[rows], device=device)
                score_BI = self.model.similarity(item_index_B)
                top.fill(rows, score_BI.scatter(1, item_index_B[:, None], ABSENT))
        return top

    def with_reasons(self, top: TopItems) -> TopItems:
        """Return the lists with their complete reasons."""
        contents, missing = "other item{s} in the catalogue", "without a relation to it"
        reasons = list_reasons(top, self.k, self._size, contents, (), missing)
        return replace(top, remarks=reasons)


def nearest_in_history(
    model: RecommenderModel, history: Histories, item_index: NDArray[np.int64], k: int
) -> TopItems:
    """For each of ``item_index`` a list of the k nearest other items of a history of one row.

    Scores are the model's similarity from the item of the history to the other item, times the
    weight of the item in the history (`history_weights`). Only scores above 0 are listed. Raises
    UnsupportedError if the model cannot compare items.
    """
    num_rows, device = len(item_index), model.device
    length = min(k, history.num_interactions)
    top = TopItems.empty(length, np.ones(num_rows, dtype=np.int64), [()] * num_rows)
    if not length:
        return top
    tensors = to_device(history, device)
    item_index_B = torch.tensor(item_index, device=device)
    item_index_C = tensors.item_index.long()
    at_once = users_at_once(model.num_items, device)
    with scoring(model), float32_products(device):
        found = [
            # From the history to the listed item: weights between items, as of EASE, have a
            # direction.
            model.similarity(item_index_C[start : start + at_once], item_index_B)
            for start in range(0, len(item_index_C), at_once)
        ]
        score_BC = torch.cat(found).T.clamp(min=0.0)
        weight_C = model.history_weights(tensors)
        if weight_C is not None:
            score_BC = score_BC * weight_C
    is_listed_BC = (score_BC > 0) & (item_index_B[:, None] != item_index_C)
    top.fill(slice(None), score_BC.masked_fill(~is_listed_BC, ABSENT), item_index_C)
    return top


def per_user(
    model: RecommenderModel,
    histories: Histories,
    user_index: NDArray[np.int64],
    compute: Callable[[UserState], Tensor],
    num_values: int = 0,
) -> NDArray[np.float32]:
    """Return values [B, num_values] computed from the state of each user, batch by batch.

    Users beyond the model's rows are folded in. ``num_values`` is needed only without users.
    """
    values = np.zeros((len(user_index), num_values), dtype=np.float32)
    at_once = users_at_once(max(num_values, model.num_items), model.device)
    for rows in user_batches(user_index, model.num_users, at_once):
        tensors = to_device(histories.rows(rows), model.device)
        with scoring(model), float32_products(model.device):
            state = state_of(model, user_index[rows], tensors, model.num_users)
            found = compute(state).float().cpu().numpy()
        if values.shape[1] != found.shape[1]:
            values = np.zeros((len(user_index), found.shape[1]), dtype=np.float32)
        values[rows] = found
    return values
