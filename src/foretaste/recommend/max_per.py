"""Limits on items of a list with the same value in a column, such as two of a brand.

Shape suffixes: B lists, R lists not yet full, C columns of scores, M columns ordered in a round, K
ranks of a list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.evaluation.ranking import ABSENT, top_k

_LOOK_AHEAD = 4
"""Columns ordered in a round for each place of a list; most lists are full after the first."""


class Limit(NamedTuple):
    """At most ``most`` items of one list have the same value in ``column``."""

    column: str
    most: int
    group: NDArray[np.int64]
    """Number of each item's value, [num_items]; -1 for an item without a value, which has no
    limit."""


class MaxPer:
    """Greedy filling of lists under limits: by rank, an item is taken if it exceeds no limit."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits

    def __str__(self) -> str:
        return " and ".join(f"{limit.most} per {limit.column}" for limit in self._limits)

    def best(
        self, score_BC: Tensor, k: int, item_index_C: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and columns of the best items, [B, k] each; empty places score `ABSENT`.

        Columns are items, or positions in ``item_index_C``. The lists are the same as if the whole
        ranking were walked, but only its beginning is sorted.
        """
        items = slice(None) if item_index_C is None else item_index_C.cpu().numpy()
        groups = [limit.group[items] for limit in self._limits]
        num_rows, num_columns = score_BC.shape
        lists: list[list[int]] = [[] for _ in range(num_rows)]
        counts = [[defaultdict[int, int](int) for _ in groups] for _ in lists]
        rows, score_RC = list(range(num_rows)), score_BC
        while rows:
            top = top_k(score_RC, _LOOK_AHEAD * k)
            column_RM = top.candidate_BK.cpu().numpy()
            num_listed_R = (top.score_BK != ABSENT).sum(1).tolist()
            still = []
            for place, row in enumerate(rows):
                column_M = column_RM[place, : num_listed_R[place]]
                self._take(lists[row], counts[row], k, column_M, groups)
                if len(lists[row]) < k and len(column_M) == column_RM.shape[1] < num_columns:
                    still.append(place)
            # Columns that were seen, and those that a limit now excludes, are out for all further
            # rounds. The best of the rest is then taken, so each round fills a place or more.
            rows = [rows[place] for place in still]
            is_out_RC = np.zeros((len(rows), num_columns), dtype=bool)
            for is_out_C, place, row in zip(is_out_RC, still, rows, strict=True):
                is_out_C[column_RM[place]] = True
                for limit, group_C, count in zip(self._limits, groups, counts[row], strict=True):
                    full = [group for group, num in count.items() if num >= limit.most]
                    is_out_C |= np.isin(group_C, full)
            is_out = torch.from_numpy(is_out_RC).to(score_BC.device)
            score_RC = score_RC[still].masked_fill(is_out, ABSENT)
        filled_BK = np.arange(k) < np.array([len(columns) for columns in lists])[:, None]
        column_BK = np.zeros((num_rows, k), dtype=np.int64)
        column_BK[filled_BK] = [*chain.from_iterable(lists)]
        best_BK, is_filled_BK = (
            torch.from_numpy(array).to(score_BC.device) for array in (column_BK, filled_BK)
        )
        return score_BC.gather(1, best_BK).masked_fill(~is_filled_BK, ABSENT), best_BK

    def _take(
        self,
        taken: list[int],
        counts: Sequence[defaultdict[int, int]],
        k: int,
        column_M: NDArray[np.int64],
        groups: Sequence[NDArray[np.int64]],
    ) -> None:
        """Append the next columns that the limits allow, up to k in all; update the counts."""
        most = [limit.most for limit in self._limits]
        groups_M = zip(*(group_C[column_M].tolist() for group_C in groups), strict=True)
        for column, own in zip(column_M.tolist(), groups_M, strict=True):
            if len(taken) == k:
                return
            for count, group, end in zip(counts, own, most, strict=True):
                if count[group] >= end:
                    break
            else:
                taken.append(column)
                for count, group in zip(counts, own, strict=True):
                    count[group] += group >= 0  # stays 0 for items without a value
