"""Scores of the catalogue in plain operations on tensors: the part of a model that is exported.

Shape suffixes: B users, N entries of all histories, I items of the catalogue, T places of a window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

_NUMBERS_OF_CHUNK = 1 << 18
"""Numbers of a chunk of the catalogue for each user: a megabyte in float32."""

_MOST_CHUNKS = 64
"""Each chunk is written out in an exported program, which grows with them."""


@dataclass(frozen=True, eq=False)
class ScorerInputs:
    """The users whom a program is asked for, all int64.

    ``item_index_N`` holds the items of all histories, one history after the other, each oldest
    first if it is read in order. ``user_index_B`` is None unless the program takes users.
    """

    item_index_N: Tensor
    length_B: Tensor
    user_index_B: Tensor | None
    num_items: int
    num_read: int | None = None
    """The number of items, the first ones, that a scorer reads and scores; None for all."""

    def within(self, num_items: int) -> ScorerInputs:
        """Return the same users for a scorer of the first ``num_items`` items."""
        return replace(self, num_read=num_items)

    def has_any(self, is_asked_I: Tensor) -> Tensor:
        """Return whether each user's history has an item that the mask marks: [B]."""
        is_asked_N = is_asked_I[self.item_index_N]
        num_asked_B = torch.zeros_like(self.length_B)
        return num_asked_B.index_add(0, self._rows, is_asked_N.to(torch.int64)) > 0

    @cached_property
    def known(self) -> Tensor:
        """The histories as float32 zeros and ones [B, I]."""
        known_BI = torch.zeros(self.length_B.shape[0], self.num_items)
        known_BI = known_BI.index_put((self._rows, self.item_index_N), torch.ones(()))
        return known_BI[:, : self.num_read]

    def newest(self, num_places: int) -> tuple[Tensor, Tensor]:
        """Return each history's newest items, oldest first, [B, T], and their number [B].

        An item that comes twice has its last place. Places behind the last item hold item 0.
        """
        row_N, item_N, num_rows = self._rows, self.item_index_N, self.length_B.shape[0]
        entry_N = torch.arange(1, item_N.shape[0] + 1)
        # Below zero, an index counts from the end; `known` refuses one that is too large.
        cell_N = row_N * self.num_items + item_N % self.num_items
        last = torch.zeros(num_rows * self.num_items, dtype=torch.int64)
        last = last.scatter_reduce(0, cell_N, entry_N, "amax")
        is_last_N = last[cell_N] == entry_N
        if self.num_read is not None:
            is_last_N = is_last_N & (item_N < self.num_read)
        # The number of last places up to each entry, after a zero for none.
        num_last = nn.functional.pad(is_last_N.to(torch.int64).cumsum(0), (1, 0))
        end_B = self.length_B.cumsum(0)
        count_B = num_last[end_B] - num_last[end_B - self.length_B]
        num_newest_B = count_B.clamp(max=num_places)
        newer_N = num_last[end_B][row_N] - num_last[1:]
        place_N = num_newest_B[row_N] - 1 - newer_N
        # One more column takes what is not among the newest.
        place_N = torch.where(is_last_N & (place_N >= 0), place_N, num_places)
        newest = torch.zeros(num_rows * (num_places + 1), dtype=torch.int64)
        newest = newest.scatter(0, row_N * (num_places + 1) + place_N, item_N % self.num_items)
        return newest.view(num_rows, num_places + 1)[:, :num_places], num_newest_B

    @cached_property
    def _rows(self) -> Tensor:
        """The row of each entry: the number of histories that end before it."""
        end_B = self.length_B.cumsum(0)
        # There is one place more than entries, for histories that end with the last of them.
        num_ends = torch.zeros(self.item_index_N.shape[0] + 1, dtype=torch.int64)
        num_ends = num_ends.index_add(0, end_B, torch.ones_like(end_B))
        return num_ends.cumsum(0)[:-1]


class BaseScorer(nn.Module, ABC):
    """A module that `torch.export` can trace for any number of users.

    Its buffers and parameters are all that the scores need. They may be the model's own.
    """

    @abstractmethod
    def scores(self, users: ScorerInputs) -> Tensor:
        """Return float32 scores [B, I], meaningless for users of whom the model `knows` nothing."""


class Scorer(BaseScorer):
    """A scorer that reads which items a history has, and not their order."""

    def scores(self, users: ScorerInputs) -> Tensor:
        scores_BI: Tensor = self(users.known, users.user_index_B)
        return scores_BI

    @abstractmethod
    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        """Return scores [B, I], float32.

        Args:
            known_BI: the histories, float32 zeros and ones.
            user_index_B: int64 for a scorer of known users, None for a scorer of any history.
        """


class OrderedScorer(BaseScorer):
    """A scorer that reads the newest items of a history in their order."""

    max_length: int
    """The number of items that it reads, at most."""

    def scores(self, users: ScorerInputs) -> Tensor:
        scores_BI: Tensor = self(*users.newest(self.max_length))
        return scores_BI

    @abstractmethod
    def forward(self, item_index_BT: Tensor, length_B: Tensor) -> Tensor:
        """Return scores [B, I], float32.

        Args:
            item_index_BT: the newest ``max_length`` items of each history, oldest first, int64;
                item 0 at the places behind the last one.
            length_B: the number of these items, int64.
        """


def item_chunks(num_items: int, numbers_each: int) -> Iterator[slice]:
    """Chunks of consecutive items, of up to a megabyte a user at ``numbers_each`` an item.

    A catalogue of more than 64 such chunks is cut into 64 larger ones.
    """
    at_once = max(1, _NUMBERS_OF_CHUNK // max(1, numbers_each), -(-num_items // _MOST_CHUNKS))
    for start in range(0, num_items, at_once):
        yield slice(start, min(start + at_once, num_items))
