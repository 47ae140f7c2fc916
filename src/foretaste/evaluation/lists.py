"""Measures of lists beyond accuracy: novelty, long tail, diversity and popularity lift.

They are of the lists that are ranked for the other metrics. Sums are taken in float64, user by
user, so that how they are shared out changes no bit of them.

Shape suffixes: B users, K ranks of the longest list, L list lengths, N items of histories,
I items of the catalogue, D width of item vectors, U all users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.evaluation.config import metric_name
from foretaste.evaluation.ranking import ABSENT, TopK
from foretaste.models.base import RecommenderModel

if TYPE_CHECKING:
    from foretaste.data.histories import Histories

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ITEM_GROUPS = ("head", "mid", "tail")

_TENTHS = (2, 8)
"""Of all interactions, those of the head, and those of head and mid (Abdollahpouri et al. 2021;
the long tail beyond 80 % also in Abdollahpouri et al. 2017)."""

_FLOATS_AT_ONCE = 1 << 20


def item_groups(count_I: Floats) -> Integers:
    """The group of each item, by its number in `ITEM_GROUPS`, from the items' training users.

    The head are the most popular items that hold 20 % of all interactions, the tail those outside
    the ones that hold 80 %. Items with as many users as the last of a group belong to it, so names
    decide nothing.
    """
    descending_I = np.sort(count_I)[::-1]
    held_I = np.cumsum(descending_I)
    head, mid = (descending_I[np.searchsorted(held_I * 10, held_I[-1] * n)] for n in _TENTHS)
    group_I: Integers = np.add(count_I < head, count_I < mid, dtype=np.int64)
    return group_I


class ListMeasures:
    """Measures of each user's list and history, batch by batch of a ranking.

    ``k`` are the lengths of lists; without ``has_lists``, as of sampled candidates, there are
    histories alone. The model has counted the items of its training users.
    """

    def __init__(
        self, model: RecommenderModel, k: Sequence[int], num_train_users: int, *, has_lists: bool
    ) -> None:
        self.count_I = model.item_count_I.cpu().numpy().astype(np.float64)
        self.item_groups = item_groups(self.count_I)
        self._bits_I = np.log2(max(num_train_users, 1)) - np.log2(np.maximum(self.count_I, 1))
        self._k = np.asarray(k)
        self._vector_ID = _item_vectors(model) if has_lists else None
        lengths = {"novelty": k, "long_tail": k, "popularity_lift": k} if has_lists else {}
        if self._vector_ID is not None:
            lengths["diversity"] = k
        self._names = [metric_name(kind, length) for kind in lengths for length in lengths[kind]]
        # each user's number, length of history and sum of its counts, measures by their names
        self._batches: list[Floats] = [np.zeros((0, 3 + len(self._names)))]

    def add(self, rows: Integers, history: Histories, top: TopK | None) -> None:
        """Add users by their numbers, with their history and their lists, where there are any."""
        count_N = self.count_I[history.item_index]
        sum_B = np.bincount(history.row_index(), weights=count_N, minlength=len(history))
        # of no items at all, bincount gives integers
        history_B2 = np.stack((history.lengths(), sum_B), axis=1, dtype=np.float64)
        measures = [] if top is None else self._of_lists(top)
        self._batches.append(np.concatenate([rows[:, None], history_B2, *measures], axis=1))

    def gather(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Bring the users of all batches together, in their order.

        ``gathered`` adds the rows of users that other processes have.
        """
        found = gathered(torch.from_numpy(np.concatenate(self._batches))).numpy()
        self._batches = [found[np.argsort(found[:, 0])]]

    def history_lengths(self) -> Integers:
        """Number of items in the history of each user, [U]."""
        return self._batches[0][:, 1].astype(np.int64)

    def per_user(self) -> dict[str, Floats]:
        """Values [U] of each measure at each length, by name.

        An empty list counts as 0, and as a popularity lift of -1.

        There is no diversity at length 1, and no popularity lift where nobody has a history.
        """
        _, length_U, sum_U, *values = self._batches[0].T
        has_any_U = length_U > 0
        in_histories = (sum_U[has_any_U] / length_U[has_any_U]).mean() if has_any_U.any() else 0.0
        measured = dict(zip(self._names, values, strict=True))
        measured.pop(metric_name("diversity", 1), None)
        for name in [name for name in measured if name.startswith("popularity_lift")]:
            if in_histories:
                measured[name] = measured[name] / in_histories - 1
            else:
                del measured[name]
        return measured

    def _of_lists(self, top: TopK) -> list[Floats]:
        """Novelty, share of the long tail, popularity and diversity of the lists, each [B, L]."""
        is_item_BK = (top.score_BK != ABSENT).cpu().numpy()
        item_BK = top.candidate_BK.cpu().numpy()
        last_L = np.minimum(self._k, item_BK.shape[1]) - 1
        num_BL = is_item_BK.cumsum(1)[:, last_L]
        is_tail_I = self.item_groups == ITEM_GROUPS.index("tail")
        measures = [
            np.where(is_item_BK, value_I[item_BK], 0.0).cumsum(1)[:, last_L] / np.maximum(num_BL, 1)
            for value_I in (self._bits_I, is_tail_I, self.count_I)
        ]
        if self._vector_ID is not None:
            measures.append(self._diversity(item_BK, is_item_BK, last_L, num_BL))
        return measures

    def _diversity(
        self, item_BK: Integers, is_item_BK: NDArray[np.bool_], last_L: Integers, num_BL: Integers
    ) -> Floats:
        """Mean of 1 - cosine over the pairs of each list, [B, L]; 0 where there is no pair.

        Of unit vectors v, the squared length of their sum is the number of them and twice the
        cosines of all pairs. A vector of zeros has cosine 0 with any.
        """
        assert self._vector_ID is not None
        at_once = max(1, _FLOATS_AT_ONCE // self._vector_ID.shape[1])
        cosines_BL = np.zeros(num_BL.shape)
        for start in range(0, len(item_BK), at_once):
            part = slice(start, start + at_once)
            sum_LbD = self._sums(item_BK[part], is_item_BK[part], last_L)
            num_units_Lb = sum_LbD[..., -1]
            length_Lb = (sum_LbD[..., :-1] ** 2).sum(-1)
            cosines_BL[part] = (length_Lb - num_units_Lb).T
        num_pairs_BL = np.maximum(num_BL * (num_BL - 1), 1)
        return np.where(num_BL > 1, np.maximum(1 - cosines_BL / num_pairs_BL, 0.0), 0.0)

    def _sums(self, item_BK: Integers, is_item_BK: NDArray[np.bool_], last_L: Integers) -> Floats:
        """Sum of the unit vectors up to each length, and behind it their number: [L, B, D + 1]."""
        vector_ID = self._vector_ID
        assert vector_ID is not None
        sum_BD = np.zeros((len(item_BK), vector_ID.shape[1] + 1))
        sum_LBD = np.zeros((len(last_L), *sum_BD.shape))
        for rank in range(item_BK.shape[1]):
            here = np.flatnonzero(is_item_BK[:, rank])
            vector_BD = vector_ID[item_BK[here, rank]].astype(np.float64)
            length_B = np.sqrt((vector_BD * vector_BD).sum(1))
            sum_BD[here, :-1] += vector_BD / np.where(length_B, length_B, 1.0)[:, None]
            sum_BD[here, -1] += length_B > 0
            sum_LBD[last_L == rank] = sum_BD
        return sum_LBD


def _item_vectors(model: RecommenderModel) -> NDArray[np.float32] | None:
    """Learned vectors of the items; None where the model has none."""
    try:
        vectors: NDArray[np.float32] = model.item_vectors().detach().float().cpu().numpy()
    except UnsupportedError:
        return None
    return vectors
