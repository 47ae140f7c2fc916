"""Sparse EASE: EASE on the neighbourhood of each item, for catalogues of any size.

The sparse approximation of Steck 2019, "Markov random fields for collaborative filtering", with the
candidates of fsSLIM (Ning & Karypis 2011, "SLIM").

For an item j with candidates C and ``G = XᵀX``, its weights b solve
``(G_CC + dropout / (1 - dropout) diag(G_CC) + l2) b = G_Cj``. G is never whole in memory. Pairs of
popular items are counted once, into a table of bounded size. Other items have few users each: their
rows of G are counted for as many systems at a time as fit.

Items have ranks by popularity here: 0 is the most popular one, and I stands for none.

Shape suffixes: I items of the catalogue, R ranks, K candidates of an item, M popular items and one
for all others, t items whose systems are solved, w the most candidates of any of them, n those of
their candidates that are not popular, D the distinct ones, e users of these, P pairs of items.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste._util.formatting import memory
from foretaste.models.base import FitProgress
from foretaste.models.baselines.config import EaseConfig
from foretaste.models.baselines.item_weights import (
    BELOW_ZERO,
    nothing_to_solve,
    stepped,
    summand_step,
    user_weights,
    users_of_items,
)
from foretaste.models.baselines.neighbors import (
    ItemPairs,
    NeighborsModel,
    blocks_of,
    expanded,
    starts_of,
    strongest,
)
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.least_squares import solve_systems
from foretaste.ops.workers import of_each

_MOST_POPULAR = 6_000
"""Items whose pairs are counted in a table, of 137 MiB."""

_NUMBERS_OF_ROWS = 1 << 25
"""Most numbers of the rows of G that are held beside the table, one for each pair of a candidate
that is not popular and a candidate of the same system; more for many items, by the next."""

_ROWS_PER_ITEM = 4
"""Rows of so many candidates for each item may always be held."""

_NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 24}
"""Pairs, cells or numbers of systems that a thread has at once, or those of one item."""

_CELLS_OF_ROWS = {"cpu": 32, "cuda": 4}
"""Cells of tables in which rows of G are counted, for each number at once."""

_BYTES_PER_PAIR = 100
_BYTES_PER_NUMBER = 24
"""Memory of a number of a system: it is gathered in float32, and padded in float64."""

_STEP_EXPONENT = -36
"""Weights are multiples of a step, so many powers of two below the largest weight. Sums of 2¹⁷ of
them are then exact in float64, in whatever order."""


class SparseEase(NeighborsModel):
    """EASE with a few weights towards each item, those of its candidates, solved among these.

    The candidates of an item share the most users with it, divided by the square root of their own
    number of users. Of equal ones the first are taken, and none that share no user. Weights may be
    below zero.
    """

    name = "ease"
    config_class = EaseConfig

    def training_bytes(self, device: torch.device) -> int:
        num_items, width = self.num_items, self.num_neighbors
        at_once = _num_threads(device) * _NUMBERS_AT_ONCE[device.type]
        num_numbers = num_items * width**2
        table = 4 * (min(num_items, _MOST_POPULAR) + 1) ** 2
        pairs = _BYTES_PER_PAIR * min(at_once, self.num_users * num_items**2)
        rows = 0
        if num_items > _MOST_POPULAR:
            rows = min(_numbers_of_rows(num_items, width), num_numbers)
            rows += _CELLS_OF_ROWS[device.type] * at_once
        system = max(min(at_once, num_numbers), width**2)
        # The C library keeps the memory of the pairs, so it is added and not used again.
        work = pairs + 4 * rows + _BYTES_PER_NUMBER * system
        return self.weight_bytes() + 8 * num_items * width + table + work

    def fitting_note(self) -> str:
        return (
            f"solving for the weights of up to {self.num_neighbors:,} neighbours towards each of "
            f"{self.num_items:,} items, which takes about "
            f"{memory(self.training_bytes(self.device))} of memory"
        )

    @torch.no_grad()
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories; TrainingError where ``l2`` is too small for them."""
        self.count_items(histories)
        found = _Neighborhoods(self.config, histories, self.num_neighbors)
        found.find(progress)
        found.solve(progress)
        weight_IK = found.weight_IK
        step = 2.0 ** (math.frexp(float(weight_IK.abs().max()))[1] + _STEP_EXPONENT)
        self._keep(found.neighbors(), weight_IK.div_(step).round_().mul_(step))

    def unrelated_scores(self) -> Tensor:
        return BELOW_ZERO * self.by_popularity_below_zero()


class _Neighborhoods:
    """The candidates of each item and their weights, while they are found.

    Candidates are kept by rank, the least popular first; before them stand those that are missing.
    """

    def __init__(self, config: Any, histories: HistoryTensors, num_neighbors: int) -> None:
        self.config, self.histories, self.device = config, histories, histories.device
        self.at_once = _NUMBERS_AT_ONCE[self.device.type]
        self.num_items = num_items = histories.num_items
        count_I = torch.bincount(histories.item_index, minlength=num_items)
        item_I = torch.sort(count_I, descending=True, stable=True).indices
        self.weight_U = user_weights(histories, config.user_power)
        users_I = users_of_items(histories, self.weight_U)
        self.item_R, self.count_R = F.pad(item_I, (0, 1)), F.pad(users_I[item_I], (0, 1))
        self.rank_I = torch.empty_like(item_I)
        self.rank_I[item_I] = torch.arange(num_items, device=self.device)
        self.num_popular = min(num_items, _MOST_POPULAR)
        # The users that popular items share; the last row and column, of zeros, are all others'.
        self.shared_MM = torch.zeros(2 * (self.num_popular + 1,), device=self.device)
        shape = num_items, num_neighbors
        self.rank_IK = torch.full(shape, num_items, dtype=torch.int32, device=self.device)
        self.weight_IK = torch.zeros(shape, device=self.device)

    def neighbors(self) -> Tensor:
        """The candidates, no longer by rank."""
        for rows in self._parts(slice(0, self.num_items)):
            self.rank_IK[rows] = self.item_R[self.rank_IK[rows].long()].int()
        return self.rank_IK

    def find(self, progress: FitProgress) -> None:
        """Find the candidates of all items; ``weight_IK`` has the shared users until `solve`."""
        pairs = ItemPairs(self.histories, self.weight_U, self.at_once)

        def find_block(items: slice) -> int:
            self._keep_pairs(*pairs.of(items))
            for rows in self._parts(items):
                self.rank_IK[rows], order_iK = torch.sort(self.rank_IK[rows], descending=True)
                self.weight_IK[rows] = self.weight_IK[rows].gather(1, order_iK)
            return int(items.stop)

        for num_done in of_each(find_block, list(pairs.blocks()), self.device):
            progress("counting pairs of items", num_done, self.num_items)

    def _keep_pairs(self, item_P: Tensor, other_P: Tensor, shared_P: Tensor) -> None:
        """Keep the candidates among all pairs of some items, and what the table has of them."""
        rank_P, other_rank_P = self.rank_I[item_P], self.rank_I[other_P]
        both_P = (rank_P < self.num_popular) & (other_rank_P < self.num_popular)
        self.shared_MM[rank_P[both_P], other_rank_P[both_P]] = shared_P[both_P].float()
        # The criterion's square is a quotient of exact sums, so equal ones are equal bit by bit.
        score_P = shared_P.square() / self.count_R[other_rank_P]
        first, place = strongest(item_P, score_P, self.rank_IK.shape[1])
        self.rank_IK[item_P[first], place] = other_rank_P[first].int()
        self.weight_IK[item_P[first], place] = shared_P[first].float()

    def _parts(self, items: slice) -> Iterator[slice]:
        """Some items, a bounded number of candidates at a time."""
        step = max(1, self.at_once // self.rank_IK.shape[1])
        for start in range(items.start, items.stop, step):
            yield slice(start, min(start + step, items.stop))

    def solve(self, progress: FitProgress) -> None:
        """Solve for the weights of all candidates; TrainingError where ``l2`` is too small."""
        num_I, num_rare_I = torch.empty_like(self.rank_I), torch.empty_like(self.rank_I)
        for rows in self._parts(slice(0, self.num_items)):
            is_one_iK = self.rank_IK[rows] < self.num_items
            num_I[rows] = is_one_iK.sum(1)
            num_rare_I[rows] = is_one_iK.logical_and_(self.rank_IK[rows] >= self.num_popular).sum(1)
        num_I, target_I = torch.sort(num_I, stable=True)
        sizes: list[int] = num_I.tolist()
        rare_before: list[int] = starts_of(num_rare_I[target_I]).tolist()
        rows_of_rare = _RowsOfRare(self.histories, self.rank_I, self.weight_U, self.at_once)

        def num_taken(stop: int) -> int:
            return (rare_before[stop] - rare_before[start] + stop - start) * sizes[stop - 1]

        start = bisect_right(sizes, 0)
        most = _numbers_of_rows(*self.rank_IK.shape)
        while start < self.num_items:
            ends = range(start + 1, self.num_items + 1)
            stop = start + max(1, bisect_right(ends, most, key=num_taken))
            for num_done in self._solve_block(
                target_I[start:stop], sizes[start:stop], rows_of_rare
            ):
                progress("solving for weights", start + num_done, self.num_items)
            start = stop

    def _solve_block(
        self, target_t: Tensor, sizes: list[int], rows_of_rare: _RowsOfRare
    ) -> Iterator[int]:
        """Solve the systems of some items, of ascending sizes; yields how many are done."""
        width, dropout = sizes[-1], self.config.dropout
        # Ranks descend and a missing candidate has rank I, so the candidates are a row's last ones.
        rank_tw = self.rank_IK[target_t, -width:]
        is_rare_tw = (rank_tw >= self.num_popular) & (rank_tw < self.num_items)
        place_n = is_rare_tw.flatten().nonzero()[:, 0]
        row_nw = rows_of_rare.restricted(rank_tw, place_n)
        first_row = torch.searchsorted(place_n, width * torch.arange(len(sizes) + 1).to(place_n))

        def solve_part(part: slice) -> Tensor:
            size = sizes[part.stop - 1]
            rank_pw = rank_tw[part, width - size :].long()
            popular_pw = rank_pw.clamp(max=self.num_popular)
            # float32 sums of users' weights are exact up to 4,096; in float64 a small penalty is
            # not rounded away.
            system_pww = self.shared_MM[popular_pw[:, :, None], popular_pw[:, None]].double()
            # The rarest come first: where one of both is rare, the upper triangle has its row.
            rows = slice(*first_row[[part.start, part.stop]].tolist())
            place_r = place_n[rows] - part.start * width
            row_r, column_r = place_r // width, place_r % width - (width - size)
            system_pww[row_r, column_r] = row_nw[rows, width - size :].double()
            count_pw = self.count_R[rank_pw]
            penalty_pw = self.config.l2 + dropout / (1 - dropout) * count_pw
            system_pww.diagonal(dim1=1, dim2=2).copy_(count_pw + penalty_pw)
            shared_pw = self.weight_IK[target_t[part], -size:].double()
            weight_pw, failure_p = solve_systems(system_pww, shared_pw)
            self.weight_IK[target_t[part], -size:] = weight_pw.float()
            return failure_p.any() | ~weight_pw.isfinite().all()

        parts = list(_parts_of_systems(sizes, self.at_once // 4))
        # One large system after another is solved, by all threads.
        solved = (
            of_each(solve_part, parts, self.device)
            if width**2 <= self.at_once
            else map(solve_part, parts)
        )
        for part, has_failed in zip(parts, solved, strict=True):
            if has_failed:
                raise nothing_to_solve(self.config.l2)
            yield part.stop


class _RowsOfRare:
    """Rows of G that are not in the table, counted from the users of their items."""

    def __init__(
        self, histories: HistoryTensors, rank_I: Tensor, weight_U: Tensor, at_once: int
    ) -> None:
        rank_N = rank_I[histories.item_index.long()].int()
        self._histories = replace(histories, item_index=rank_N)
        self._users = self._histories.transposed()
        # Where interactions have no weights, float32 sums are exact, in half the memory.
        self._weight_U = weight_U.float() if histories.weight is None else weight_U
        self._step = 0.0 if histories.weight is None else summand_step(histories, weight_U)
        self._length_U = histories.lengths()
        num_before_N = starts_of(self._length_U[self._users.item_index.long()])
        self._num_pairs_R = num_before_N[self._users.offsets].diff()
        self._at_once = at_once

    def restricted(self, rank_tw: Tensor, place_n: Tensor) -> Tensor:
        """The rows [n, w] of candidates ``rank_tw.flatten()[place_n]``, where their items' other
        candidates are."""
        width, device = rank_tw.shape[1], rank_tw.device
        row_nw = torch.empty(len(place_n), width, device=device)
        rank_n, order_n = torch.sort(rank_tw.flatten()[place_n], stable=True)
        rank_D, num_D = torch.unique_consecutive(rank_n, return_counts=True)
        first_D = starts_of(num_D)
        num_columns = self._histories.num_items + 1
        cost_of_table = num_columns // _CELLS_OF_ROWS[device.type]
        cost_D = self._num_pairs_R[rank_D] + num_D * width + cost_of_table
        groups = list(blocks_of(starts_of(cost_D), self._at_once))
        num_rows = max((group.stop - group.start for group in groups), default=0)
        tables: SimpleQueue[Tensor] = SimpleQueue()
        for _ in range(_num_threads(device)):
            size = num_rows * num_columns
            tables.put(torch.zeros(size, device=device, dtype=self._weight_U.dtype))

        def count_group(group: slice) -> None:
            table = tables.get()
            try:
                count_in(table, group)
            finally:  # or the others would wait for it
                tables.put(table)

        def count_in(table: Tensor, group: slice) -> None:
            added = list(self._add_rows(table, rank_D[group]))
            rows = torch.arange(group.stop - group.start, dtype=torch.int32, device=device)
            first_cell_n = torch.repeat_interleave(rows * num_columns, num_D[group])
            first, end = first_D[[group.start, group.stop]].tolist()
            step = max(1, self._at_once // width)
            for start in range(first, end, step):
                part = slice(start, min(start + step, end))
                cell_nw = rank_tw.index_select(0, place_n[order_n[part]] // width)
                cell_nw += first_cell_n[part.start - first : part.stop - first, None]
                counted_nw = table.index_select(0, cell_nw.flatten()).view_as(cell_nw).float()
                row_nw.index_copy_(0, order_n[part], counted_nw)
            for cell_P in added:
                table.index_fill_(0, cell_P, 0.0)

        for _ in of_each(count_group, groups, device):
            pass
        return row_nw

    def _add_rows(self, table: Tensor, rank_D: Tensor) -> Iterator[Tensor]:
        """Add the rows of some items to a table [D, I + 1] of zeros; yields its cells."""
        users, histories = self._users, self._histories
        row_e, place_e = expanded(users.offsets[rank_D], users.offsets[rank_D + 1])
        user_e = users.item_index[place_e].long()
        for part in blocks_of(starts_of(self._length_U[user_e]), self._at_once):
            user_p = user_e[part]
            entry_P, place_P = expanded(histories.offsets[user_p], histories.offsets[user_p + 1])
            first_cell_p = row_e[part] * (histories.num_items + 1)
            cell_P = first_cell_p[entry_P] + histories.item_index[place_P]
            weight_P = self._weight_U[user_p][entry_P]
            if users.weight is not None and histories.weight is not None:
                weight_P = weight_P * users.weight[place_e[part]][entry_P]
                weight_P = stepped(weight_P * histories.weight[place_P], self._step)
            table.index_add_(0, cell_P, weight_P)
            yield cell_P


def _numbers_of_rows(num_items: int, width: int) -> int:
    # A block of systems counts the row of almost every item anew: of 736,000 items 3,700 systems
    # had 260,000 candidates. So the number of blocks must not grow with the items.
    return max(_NUMBERS_OF_ROWS, _ROWS_PER_ITEM * num_items * width)


def _num_threads(device: torch.device) -> int:
    """Threads that compute on a device for `of_each`."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _parts_of_systems(sizes: list[int], numbers: int) -> Iterator[slice]:
    """Consecutive systems of ascending sizes, of at most ``numbers`` or one system at once."""

    def num_taken(stop: int) -> int:
        return (stop - start) * sizes[stop - 1] * sizes[stop - 1]

    start = 0
    while start < len(sizes):
        ends = range(start + 1, len(sizes) + 1)
        stop = start + max(1, bisect_right(ends, numbers, key=num_taken))
        yield slice(start, stop)
        start = stop
