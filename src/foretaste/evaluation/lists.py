"""Measures of lists beyond accuracy: novelty, long tail and popularity lift.

They are measured on the same ranking as the other metrics. Sums are taken in float64, user by user,
so they are the same bits however the users are shared out to processes.

Shape suffixes: B users, K ranks of the longest list, L list lengths, N items of histories,
I items of the catalogue, U all users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.evaluation.config import LIST_METRICS, metric_name
from foretaste.evaluation.ranking import ABSENT, TopK
from foretaste.models.base import RecommenderModel

if TYPE_CHECKING:
    from foretaste.data.histories import Histories

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ITEM_GROUPS = ("head", "mid", "tail")

_TENTHS = (2, 8)
"""Shares of all interactions: of the head, and of head and mid (Abdollahpouri et al. 2021;
the long tail beyond 80 % also in Abdollahpouri et al. 2017)."""


def item_groups(count_I: Floats) -> Integers:
    """Return each item's group, its number in `ITEM_GROUPS`, from the items' training users.

    The head are the most popular items that hold 20 % of all interactions, the tail those outside
    the ones that hold 80 %. Items with as many users as the last of a group belong to it, so names
    decide nothing.
    """
    descending_I = np.sort(count_I)[::-1]
    held_I = np.cumsum(descending_I)
    # Ten times the count is compared with tenths of the whole: both are integers, so nothing is
    # rounded at a bound.
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
        kinds = LIST_METRICS if has_lists else ()
        self._names = [metric_name(kind, length) for kind in kinds for length in k]
        # Columns: the user's number, the length of the history, the sum of its items' counts, and
        # a measure for each name.
        self._batches: list[Floats] = [np.zeros((0, 3 + len(self._names)))]

    def add(self, rows: Integers, history: Histories, top: TopK | None) -> None:
        """Add a batch of users: their numbers, histories, and lists if there are any."""
        count_N = self.count_I[history.item_index]
        sum_B = np.bincount(history.row_index(), weights=count_N, minlength=len(history))
        # `bincount` of no items at all gives integers, also with weights.
        history_B2 = np.stack((history.lengths(), sum_B), axis=1, dtype=np.float64)
        measures = [] if top is None else self._measure(top)
        self._batches.append(np.concatenate([rows[:, None], history_B2, *measures], axis=1))

    def gather(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Put the users of all batches into one table, in the order of their numbers.

        ``gathered`` adds the rows of the users of other processes.
        """
        found = gathered(torch.from_numpy(np.concatenate(self._batches))).numpy()
        self._batches = [found[np.argsort(found[:, 0])]]

    def history_lengths(self) -> Integers:
        """Return the number of items in the history of each user, [U]."""
        return self._batches[0][:, 1].astype(np.int64)

    def per_user(self) -> dict[str, Floats]:
        """Return values [U] of each measure at each length, by name.

        An empty list counts as 0, and as a popularity lift of -1. There is no popularity lift if
        nobody has a history.
        """
        _, length_U, sum_U, *values = self._batches[0].T
        has_any_U = length_U > 0
        in_histories = (sum_U[has_any_U] / length_U[has_any_U]).mean() if has_any_U.any() else 0.0
        measured = dict(zip(self._names, values, strict=True))
        for name in [name for name in measured if name.startswith("popularity_lift")]:
            if in_histories:
                # The delta GAP of Abdollahpouri et al. (2019).
                measured[name] = measured[name] / in_histories - 1
            else:
                del measured[name]
        return measured

    def _measure(self, top: TopK) -> list[Floats]:
        """Return the measures of the lists in the order of `LIST_METRICS`, each [B, L]. That of
        popularity_lift is the popularity, which `per_user` divides."""
        is_item_BK = (top.score_BK != ABSENT).cpu().numpy()
        item_BK = top.candidate_BK.cpu().numpy()
        last_L = np.minimum(self._k, item_BK.shape[1]) - 1
        # Running sums along the list give every length at once.
        num_BL = is_item_BK.cumsum(1)[:, last_L]
        is_tail_I = self.item_groups == ITEM_GROUPS.index("tail")
        return [
            np.where(is_item_BK, value_I[item_BK], 0.0).cumsum(1)[:, last_L] / np.maximum(num_BL, 1)
            for value_I in (self._bits_I, is_tail_I, self.count_I)
        ]
