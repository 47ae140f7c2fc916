"""Verified negatives: the items a user does not have, by rank, without a users-by-items matrix.

Shape suffixes: B users, N interactions or draws, K draws per row, I items.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import bounded, hash_words

_DRAWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Complement:
    """The items each user does *not* have, found by rank in O(interactions) memory.

    With a user's items sorted, the r-th item not among them is r plus the number of positions j
    with ``items[j] - j <= r``: one binary search over the rows laid end to end, each row's keys
    shifted past the row before it.
    """

    key_N: Tensor
    offsets: Tensor
    num_items: int

    @classmethod
    def of(cls, histories: HistoryTensors) -> Complement:
        """Index ``histories``; its rows must be ascending and free of repeats."""
        row_N = histories.row_index()
        position_N = torch.arange(row_N.numel(), device=row_N.device)
        gaps_N = histories.item_index - (position_N - histories.offsets[row_N])
        return cls(
            gaps_N + row_N * (histories.num_items + 1), histories.offsets, histories.num_items
        )

    def sizes(self) -> Tensor:
        """How many items each user does not have, int64 [B]."""
        return self.num_items - self.offsets.diff()

    def select(self, row_index: Tensor, rank: Tensor) -> Tensor:
        """The ``rank``-th item (0-based, ascending) that row ``row_index`` does not have, int64.

        Both broadcast together. Fastest in row order: neighbouring searches share their path.
        """
        wanted = rank + row_index.long() * (self.num_items + 1)
        found = torch.searchsorted(self.key_N, wanted, right=True)
        return rank + found - self.offsets[row_index]


def sample_negatives(
    complement: Complement, row_index_N: Tensor, num_negatives: int, key: int, first_row: int = 0
) -> Tensor:
    """Verified negatives, int32 [N, K], drawn uniformly with replacement.

    Draw k of row n is word ``(first_row + n) * K + k`` of the stream ``key``. A row whose user has
    every item has no negative: it gets the last item, which callers must give weight 0.
    """
    num_rows = row_index_N.numel()
    size_B = complement.sizes()
    negatives_NK = torch.empty(
        num_rows, num_negatives, dtype=torch.int32, device=row_index_N.device
    )
    rows_at_once = max(1, _DRAWS_AT_ONCE // max(1, num_negatives))
    for start in range(0, num_rows, rows_at_once):
        rows = row_index_N[start : start + rows_at_once].long()[:, None]
        rank_NK = bounded(_words(key, first_row + start, rows, num_negatives), size_B[rows])
        item_NK = complement.select(rows, rank_NK).clamp_(max=complement.num_items - 1)
        negatives_NK[start : start + rows_at_once] = item_NK
    return negatives_NK


def sample_items(
    num_items: int, row_index_N: Tensor, num_negatives: int, key: int, first_row: int = 0
) -> Tensor:
    """Unverified negatives, int32 [N, K]: uniform over the catalogue, positives among them."""
    word_NK = _words(key, first_row, row_index_N[:, None], num_negatives)
    return bounded(word_NK, num_items).int()


def _words(key: int, first_row: int, row_index_N1: Tensor, num_negatives: int) -> Tensor:
    num_words = row_index_N1.numel() * num_negatives
    first_word = first_row * num_negatives
    counter = torch.arange(first_word, first_word + num_words, device=row_index_N1.device)
    return hash_words(key, counter).view(-1, num_negatives)
