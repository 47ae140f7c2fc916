"""Verified negatives: the items a user does not have, by rank, without a users-by-items matrix.

Shape suffixes: B users or rows, N interactions or draws, K draws per row, I items, n rows of
a block, J cells of marks, S draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import GOLDEN, bounded, mix_

_DRAWS_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 20}
ITEMS_PER_DRAW = 64
"""Up to so many items of the catalogue for each draw of a row, a CPU marks the items that the user
has; above, it searches. A binary search takes as long as marking some two hundred items: the
processor mispredicts every other branch of it."""
_WAITS = {"cpu": False, "cuda": True}
"""True where the host waits for the device to learn how many numbers there are of a kind."""


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
        # items[j] - j: the number of items below items[j] that the user does not have.
        gaps_N = histories.item_index - (position_N - histories.offsets[row_N])
        return cls(
            gaps_N + row_N * (histories.num_items + 1), histories.offsets, histories.num_items
        )

    def sizes(self) -> Tensor:
        """Number of items each user does not have, int64 [B]."""
        return self.num_items - self.offsets.diff()

    def select(self, row_index: Tensor, rank: Tensor) -> Tensor:
        """The ``rank``-th item (0-based, ascending) that row ``row_index`` does not have, int64.

        Both broadcast together. Fastest in row order: neighbouring searches share their path.
        """
        wanted = rank + row_index.long() * (self.num_items + 1)
        # On two cores 45 million draws a second in user order, 9.5 to 21 million in shuffled order.
        found = torch.searchsorted(self.key_N, wanted, right=True)
        return rank + found - self.offsets[row_index]

    def has(self, row_index_B: Tensor, item_BK: Tensor) -> Tensor:
        """True where the user of a row has an item; bool [B, K]."""
        num_rows, width = len(row_index_B), self.num_items + 1
        waits, num_draws = _WAITS[item_BK.device.type], item_BK.shape[1]
        if waits or self.num_items > ITEMS_PER_DRAW * num_draws:
            wanted_BK = item_BK + row_index_B[:, None].long() * width
            return self._item_keys[torch.searchsorted(self._item_keys, wanted_BK)] == wanted_BK
        starts_B = self.offsets[row_index_B]
        lengths_B = self.offsets[row_index_B + 1] - starts_B
        before_B = lengths_B.cumsum(0) - lengths_B
        row_N = torch.repeat_interleave(lengths_B)
        number_N = torch.arange(len(row_N))
        key_N = self.key_N.index_select(0, (starts_B - before_B).index_select(0, row_N) + number_N)
        # from key to item, from the user's row to this one
        shift_B = (torch.arange(num_rows) - row_index_B) * width - before_B
        place_N = key_N.add_(number_N).add_(shift_B.index_select(0, row_N))
        has_J = torch.zeros(num_rows * width, dtype=torch.bool)
        has_J.index_fill_(0, place_N, True)
        place_BK = item_BK + torch.arange(0, num_rows * width, width)[:, None]
        return torch.take(has_J, place_BK)

    @cached_property
    def _item_keys(self) -> Tensor:
        """The items themselves, each row's shifted past the row before it; then a larger number."""
        row_N = torch.repeat_interleave(self.offsets.diff())
        position_N = torch.arange(len(row_N), device=row_N.device) - self.offsets[row_N]
        return F.pad(self.key_N + position_N, (0, 1), value=1 << 62)


def sample_negatives(
    complement: Complement,
    row_index_N: Tensor,
    num_negatives: int,
    key: int,
    number_N: Tensor | None = None,
    *,
    by_item: bool = False,
) -> Tensor:
    """Verified negatives, int32 [N, K], drawn uniformly with replacement.

    Draw k of a row is word ``number * K + k`` of the stream ``key``; rows are numbered 0, 1...
    unless ``number_N``, int64, says otherwise. A row whose user has every item has no negative: it
    gets the last item, which callers must give weight 0.

    A draw is the rank of an item among those that the user does not have. With ``by_item`` it is an
    item of the catalogue first. Only where the user has that item, the word's other half draws a
    rank. The draws differ and are as uniform. For hundreds of draws a row among tens of thousands
    of items this takes a CPU half as long; a GPU searches once more.
    """
    size_B = complement.sizes()
    negatives_NK = _room_for(row_index_N, num_negatives)
    for rows, word_NK in _words(key, number_N, negatives_NK):
        row_n = row_index_N[rows].long()
        if by_item:
            item_nK = _by_item(complement, row_n, word_NK, size_B)
        else:
            item_nK = complement.select(row_n[:, None], bounded(word_NK, size_B[row_n, None]))
        negatives_NK[rows] = item_nK.clamp_(max=complement.num_items - 1)
    return negatives_NK


def _by_item(complement: Complement, row_B: Tensor, word_BK: Tensor, size_B: Tensor) -> Tensor:
    item_BK = bounded(word_BK, complement.num_items)
    has_BK = complement.has(row_B, item_BK)
    if _WAITS[word_BK.device.type]:
        # A GPU searches for every draw: the host would have to wait to learn which are needed.
        other_BK = complement.select(row_B[:, None], bounded(word_BK << 32, size_B[row_B, None]))
        return torch.where(has_BK, other_BK, item_BK)
    place_S = has_BK.view(-1).nonzero().squeeze(1)
    row_S = row_B[place_S // word_BK.shape[1]]
    other_S = complement.select(row_S, bounded(word_BK.view(-1)[place_S] << 32, size_B[row_S]))
    item_BK.view(-1).index_copy_(0, place_S, other_S)
    return item_BK


def sample_items(
    num_items: int,
    row_index_N: Tensor,
    num_negatives: int,
    key: int,
    number_N: Tensor | None = None,
) -> Tensor:
    """Unverified negatives, int32 [N, K]: uniform over the catalogue, positives among them."""
    items_NK = _room_for(row_index_N, num_negatives)
    for rows, word_NK in _words(key, number_N, items_NK):
        items_NK[rows] = bounded(word_NK, num_items)
    return items_NK


def _room_for(row_index_N: Tensor, num_negatives: int) -> Tensor:
    shape = (row_index_N.numel(), num_negatives)
    return torch.empty(shape, dtype=torch.int32, device=row_index_N.device)


def _words(key: int, number_N: Tensor | None, draws_NK: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The random words of all draws, in blocks of rows that bound the memory."""
    num_rows, num_draws = draws_NK.shape
    rows_at_once = max(1, _DRAWS_AT_ONCE[draws_NK.device.type] // max(1, num_draws))
    draw_K = torch.arange(num_draws, device=draws_NK.device)
    for start in range(0, num_rows, rows_at_once):
        stop = min(start + rows_at_once, num_rows)
        number_n = torch.arange(start, stop, device=draws_NK.device)
        if number_N is not None:
            number_n = number_N[start:stop]
        # `hash_words` of number * K + k: times GOLDEN that is a row's part plus a draw's.
        word_nK = (number_n * num_draws * GOLDEN + key)[:, None] + draw_K * GOLDEN
        yield slice(start, stop), mix_(word_nK)
