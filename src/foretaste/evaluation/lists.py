"""Measures of lists beyond accuracy: novelty, long tail, diversity and popularity lift.

They are measured on the same ranking as the other metrics. Sums are taken in float64, user by user,
so they are the same bits however the users are shared out to processes.

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

# Numbers in the vectors that are summed at once, one vector for each user.
_FLOATS_AT_ONCE = 1 << 20


def item_groups(count_I: Floats) -> Integers:
    """The group of each item, by its number in `ITEM_GROUPS`, from the items' training users.

    The head are the most popular items that hold 20 % of all interactions, the tail those outside
    the ones that hold 80 %. Items with as many users as the last of a group belong to it, so names
    decide nothing.
    """
    descending_I = np.sort(count_I)[::-1]
    held_I = np.cumsum(descending_I)
    # Ten times the count against tenths of the whole: integers, so nothing is rounded at a bound.
    head, mid = (descending_I[np.searchsorted(held_I * 10, held_I[-1] * n)] for n in _TENTHS)
    group_I: Integers = np.add(count_I < head, count_I < mid, dtype=np.int64)
    return group_I


class ListMeasures:
    """Measures of each user's list and history, batch by batch of a ranking.

    ``k`` are the list lengths. Without ``has_lists``, as under sampled candidates, only histories
    are measured. The model must have counted the items of its training users (`count_items`).
    """

    def __init__(
        self, model: RecommenderModel, k: Sequence[int], num_train_users: int, *, has_lists: bool
    ) -> None:
        self.count_I = model.item_count_I.cpu().numpy().astype(np.float64)
        self.item_groups = item_groups(self.count_I)
        # -log2(users with the item / training users) (Zhou et al. 2010). An item that nobody has
        # counts as one that a single user has: else it would have infinitely many bits.
        self._bits_I = np.log2(max(num_train_users, 1)) - np.log2(np.maximum(self.count_I, 1))
        self._k = np.asarray(k)
        self._vector_ID = _item_vectors(model) if has_lists else None
        lengths = {"novelty": k, "long_tail": k, "popularity_lift": k} if has_lists else {}
        if self._vector_ID is not None:
            lengths["diversity"] = k
        self._names = [metric_name(kind, length) for kind in lengths for length in lengths[kind]]
        # Columns: the user's number, the length of the history, the sum of its items' counts, and
        # a measure for each name.
        self._batches: list[Floats] = [np.zeros((0, 3 + len(self._names)))]

    def add(self, rows: Integers, history: Histories, top: TopK | None) -> None:
        """Add a batch of users: their numbers, histories, and lists where there are any."""
        count_N = self.count_I[history.item_index]
        sum_B = np.bincount(history.row_index(), weights=count_N, minlength=len(history))
        # `bincount` of no items at all gives integers, whatever the weights.
        history_B2 = np.stack((history.lengths(), sum_B), axis=1, dtype=np.float64)
        measures = [] if top is None else self._of_lists(top)
        self._batches.append(np.concatenate([rows[:, None], history_B2, *measures], axis=1))

    def gather(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Put the users of all batches into one table, in the order of their numbers.

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
                # The delta GAP of Abdollahpouri et al. (2019).
                measured[name] = measured[name] / in_histories - 1
            else:
                del measured[name]
        return measured

    def _of_lists(self, top: TopK) -> list[Floats]:
        """Novelty, share of the long tail, popularity and diversity of the lists, each [B, L]."""
        is_item_BK = (top.score_BK != ABSENT).cpu().numpy()
        item_BK = top.candidate_BK.cpu().numpy()
        last_L = np.minimum(self._k, item_BK.shape[1]) - 1
        # Running sums along the list give every length at once.
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

        A vector of zeros has cosine 0 with any.
        """
        assert self._vector_ID is not None
        at_once = max(1, _FLOATS_AT_ONCE // self._vector_ID.shape[1])
        cosines_BL = np.zeros(num_BL.shape)
        for start in range(0, len(item_BK), at_once):
            part = slice(start, start + at_once)
            sum_LbD = self._sums(item_BK[part], is_item_BK[part], last_L)
            # Of unit vectors |sum v|^2 = (number of them) + 2 * (cosines of all pairs), so a list
            # takes no K x K products.
            num_units_Lb = sum_LbD[..., -1]
            length_Lb = (sum_LbD[..., :-1] ** 2).sum(-1)
            cosines_BL[part] = (length_Lb - num_units_Lb).T
        # Both are of ordered pairs, so the factor of two cancels.
        num_pairs_BL = np.maximum(num_BL * (num_BL - 1), 1)
        return np.where(num_BL > 1, np.maximum(1 - cosines_BL / num_pairs_BL, 0.0), 0.0)

    def _sums(self, item_BK: Integers, is_item_BK: NDArray[np.bool_], last_L: Integers) -> Floats:
        """Sums of the unit vectors up to each length, [L, B, D + 1].

        The last column is the number of vectors that are not zero.
        """
        vector_ID = self._vector_ID
        assert vector_ID is not None
        sum_BD = np.zeros((len(item_BK), vector_ID.shape[1] + 1))
        sum_LBD = np.zeros((len(last_L), *sum_BD.shape))
        # Rank by rank: the vectors of whole lists would be K times as many numbers in memory.
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
