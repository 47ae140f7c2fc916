"""Models that keep a few neighbours of each item: item-kNN and RP3beta, for catalogues of any size.

Shape suffixes: B users, I items of the catalogue, K neighbours of an item, U users, N entries of
histories, n those of a part of them, P pairs of items, M pairs of an item and its neighbour, C
cells.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from foretaste._util.formatting import memory
from foretaste.models.base import FitProgress, UserState
from foretaste.models.baselines.config import ItemKNNConfig, RP3betaConfig
from foretaste.models.baselines.item_weights import (
    ItemWeightsModel,
    stepped,
    summand_step,
    user_weights,
    users_of_items,
)
from foretaste.models.scorer import Scorer, item_chunks
from foretaste.ops.histories import HistoryTensors

_PAIRS_AT_ONCE = 1 << 20
"""Pairs that are held at once: of items in one history, or of an item and a neighbour."""

_CELLS_PER_PAIR = 8
"""A block of items is summed in a table of all its pairs where that has at most so many cells for
each pair to sum; else the pairs are sorted."""

_FIT_BYTES = 8
"""Of each neighbour of each item while fitting, beside its place in the model: index and weight."""

_STEP = 2.0**-36
"""Summands are multiples of it: their float64 sums, up to 2¹⁷, are exact in whatever order."""

_FINE_STEP = 2.0**-46
"""Of small summands, with sums up to 2⁷."""

_Weights = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Weights [P] of sums, items and targets [P]."""


class NeighborsModel(ItemWeightsModel):
    """Scores an item by the summed weights of its neighbours that are in the history.

    Neighbours are the items of the highest weights towards it, and of equal weights those of the
    lowest index. Items that have no neighbour in the history follow in popularity order.
    """

    memory_advice = "keep fewer neighbours of each item (--neighbors)"

    def __init__(self, config: Any, num_users: int, num_items: int) -> None:
        super().__init__(config, num_users, num_items)
        self.num_neighbors: int = min(self.config.neighbors, num_items)
        self.first_target_I: Tensor
        self.target_M: Tensor
        self.weight_M: Tensor
        # Item i is a neighbour of target_M[first_target_I[i]:first_target_I[i + 1]], with these
        # weights: grouped by the item of the history, as a score reads them. Both tensors have
        # room for the most neighbours that there may be, so that their shapes are known before the
        # fit; what is left over is zero.
        size = num_items * self.num_neighbors
        self.register_buffer("first_target_I", torch.zeros(num_items + 1, dtype=torch.int64))
        self.register_buffer("target_M", torch.zeros(size, dtype=torch.int32))
        self.register_buffer("weight_M", torch.zeros(size))

    def _keep(self, neighbor_IK: Tensor, weight_IK: Tensor) -> None:
        """Keep the neighbours of each item, grouped by neighbour; a weight of zero means none."""
        rows_at_once = max(1, _PAIRS_AT_ONCE // self.num_neighbors)
        # Turned round in two passes over parts of bounded size: count for each neighbour, then
        # place.
        parts = [slice(at, at + rows_at_once) for at in range(0, self.num_items, rows_at_once)]
        count_I = torch.zeros_like(self.first_target_I[1:])
        for part in parts:
            found_P = neighbor_IK[part][weight_IK[part] != 0]
            count_I += torch.bincount(found_P, minlength=self.num_items)
        self.first_target_I.copy_(starts_of(count_I))
        self.target_M.zero_()
        self.weight_M.zero_()
        next_I = self.first_target_I[:-1].clone()
        for part in parts:
            target_P, place_P = weight_IK[part].nonzero(as_tuple=True)
            neighbor_P, order_P = torch.sort(neighbor_IK[part][target_P, place_P], stable=True)
            position_P = next_I[neighbor_P] + _places(neighbor_P)
            self.target_M[position_P] = (target_P[order_P] + part.start).int()
            self.weight_M[position_P] = weight_IK[part][target_P, place_P][order_P]
            next_I += torch.bincount(neighbor_P, minlength=self.num_items)

    def _keep_targets(self, target_IK: Tensor, weight_IK: Tensor) -> None:
        """Keep the items that each item is a neighbour of; a weight of zero means none."""
        is_one_IK = weight_IK != 0
        self.first_target_I.copy_(starts_of(is_one_IK.sum(1)))
        num_pairs = int(self.first_target_I[-1])
        self.target_M.zero_()[:num_pairs] = target_IK[is_one_IK]
        self.weight_M.zero_()[:num_pairs] = weight_IK[is_one_IK]

    def _weights_added(self, histories: HistoryTensors) -> Tensor:
        score_BI = torch.zeros(
            (len(histories), self.num_items), dtype=torch.float64, device=self.device
        )
        first_cell_N = histories.row_index() * self.num_items
        item_index_N = histories.item_index.long()
        first_N, end_N = self.first_target_I[item_index_N], self.first_target_I[item_index_N + 1]
        for part in blocks_of(starts_of(end_N - first_N), _PAIRS_AT_ONCE):
            entry_P, position_P = expanded(first_N[part], end_N[part])
            cell_P = first_cell_N[part][entry_P] + self.target_M[position_P]
            # In float64, where sums of multiples of a step are exact: the order of a history, of a
            # batch and of threads changes no bit.
            score_BI.view(-1).index_add_(0, cell_P, self.weight_M[position_P].double())
        return score_BI.float()

    def _score_catalogue(self, state: UserState) -> Tensor:
        score_BI = super()._score_catalogue(state)
        return torch.where(score_BI != 0, score_BI, self.unrelated_scores())

    def unrelated_scores(self) -> Tensor:
        """Scores [I] of items that the history says nothing of."""
        return self.by_popularity_below_zero()

    def scorer(self, *, known_users: bool) -> Scorer:
        length_I = self.first_target_I.diff()
        neighbor_M = torch.repeat_interleave(torch.arange(self.num_items), length_I)
        target_M, order_M = torch.sort(self.target_M[: len(neighbor_M)], stable=True)
        place_M = _places(target_M)
        width = int(place_M.max()) + 1 if len(place_M) else 1
        neighbor_IK = torch.zeros(self.num_items, width, dtype=torch.int64)
        neighbor_IK[target_M, place_M] = neighbor_M[order_M]
        weight_IK = torch.zeros(self.num_items, width, dtype=torch.float64)
        weight_IK[target_M, place_M] = self.weight_M[order_M].double()
        return _NeighborScorer(neighbor_IK, weight_IK, self.unrelated_scores())


class _NeighborScorer(Scorer):
    """The neighbours of each item, filled up by weights of zero. Sums are exact, as the model's."""

    def __init__(self, neighbor_IK: Tensor, weight_IK: Tensor, without_I: Tensor) -> None:
        super().__init__()
        self.neighbor_IK: Tensor
        self.weight_IK: Tensor
        self.without_I: Tensor
        self.register_buffer("neighbor_IK", neighbor_IK)
        self.register_buffer("weight_IK", weight_IK)
        self.register_buffer("without_I", without_I)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        num_items, width = self.neighbor_IK.shape
        parts = []
        for items in item_chunks(num_items, 2 * width):
            neighbor_n = self.neighbor_IK[items].flatten()
            shape = known_BI.shape[0], items.stop - items.start, width
            known_BcK = known_BI.index_select(1, neighbor_n).view(shape)
            parts.append((known_BcK * self.weight_IK[items]).sum(2))
        score_BI = torch.cat(parts, dim=1).float()
        return torch.where(score_BI != 0, score_BI, self.without_I)


class SimilarityModel(NeighborsModel):
    """The weight of two items comes from a sum over the users who have both."""

    def training_bytes(self, device: torch.device) -> int:
        return self.weight_bytes() + _FIT_BYTES * self.num_items * self.num_neighbors

    def fitting_note(self) -> str:
        return (
            f"finding up to {self.num_neighbors:,} neighbours for each of {self.num_items:,} "
            f"items, which takes about {memory(self.training_bytes(self.device))} of memory"
        )

    @torch.no_grad()
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories."""
        self.count_items(histories)
        shape = self.num_items, self.num_neighbors
        neighbor_IK = torch.zeros(shape, dtype=torch.int32, device=self.device)
        weight_IK = torch.zeros(shape, device=self.device)
        weight_U, weights = self.formula(histories)
        histories = self.entries(histories)
        for item_P, other_P, sum_P in pair_sums(histories, weight_U):
            towards_P = (item_P, other_P) if self.cuts_sources else (other_P, item_P)
            weight_P = stepped(weights(sum_P, *towards_P), self.step).float()
            first, place = strongest(item_P, weight_P, self.num_neighbors)
            neighbor_IK[item_P[first], place] = other_P[first].int()
            weight_IK[item_P[first], place] = weight_P[first]
            progress("finding neighbours", int(item_P[-1]) + 1, self.num_items)
        if self.cuts_sources:
            self._keep_targets(neighbor_IK, weight_IK)
        else:
            self._keep(neighbor_IK, weight_IK)

    @property
    def cuts_sources(self) -> bool:
        """Each item keeps its strongest targets, and not each target its strongest neighbours."""
        return False

    @property
    def step(self) -> float:
        """Weights of neighbours are multiples of it."""
        return _STEP

    def entries(self, histories: HistoryTensors) -> HistoryTensors:
        """The histories with the entries whose products are summed."""
        return histories

    @abstractmethod
    def formula(self, histories: HistoryTensors) -> tuple[Tensor, _Weights]:
        """The weights [U] of users, float64, and a function from sums to weights [P].

        It gets the sum, for each pair, of the weights of the users who have both an item [P] and a
        target [P], each times the `entries` of both.
        """


class ItemKNN(SimilarityModel):
    """Item-kNN: the weight is the cosine of the items' columns of users, shrunk towards zero.

    For n users of each and c of both it is ``c / (sqrt(n_i n_j) + shrinkage)``. With a
    ``user_power`` users with many items count less in all three. Where interactions have weights,
    these are the entries of a column: n is the sum of their squares, c that of their products.
    """

    name = "itemknn"
    config_class = ItemKNNConfig

    def formula(self, histories: HistoryTensors) -> tuple[Tensor, _Weights]:
        weight_U = user_weights(histories, self.config.user_power)
        length_I = users_of_items(histories, weight_U).sqrt()
        shrinkage: float = self.config.shrinkage

        def weights(sum_P: Tensor, item_P: Tensor, target_P: Tensor) -> Tensor:
            return sum_P / (length_I[item_P] * length_I[target_P] + shrinkage)

        return weight_U, weights


class RP3beta(SimilarityModel):
    """RP3beta: the weight is the chance of a random walk from an item over its users to another.

    Paudel et al. 2017. Steps have their probability to the power ``alpha``. The weight is divided
    by the number of users of the other item to the power ``beta``. Where interactions have weights,
    a step takes each in proportion to its weight, and an item's number of users is the sum of its
    weights.
    """

    name = "rp3beta"
    config_class = RP3betaConfig

    @property
    def cuts_sources(self) -> bool:
        return bool(self.config.cut == "source")

    @property
    def step(self) -> float:
        # Weights are then at most 1, and those of popular items far below.
        return _FINE_STEP if self.config.alpha + self.config.beta > 1.0 else _STEP

    def entries(self, histories: HistoryTensors) -> HistoryTensors:
        if histories.weight is None:
            return histories
        return replace(histories, weight=histories.weight.pow(self.config.alpha))

    def formula(self, histories: HistoryTensors) -> tuple[Tensor, _Weights]:
        total_U, total_I = histories.total_weights(), self.item_count_I.double()
        if histories.weight is not None:
            total_I = histories.transposed().total_weights()
        of_item_I, of_target_I = total_I.pow(-self.config.alpha), total_I.pow(-self.config.beta)

        def weights(sum_P: Tensor, item_P: Tensor, target_P: Tensor) -> Tensor:
            # n_i^-alpha (sum over users of n_u^-alpha) n_j^-beta: the steps out of the item and out
            # of the user.
            return sum_P * of_item_I[item_P] * of_target_I[target_P]

        weight_U = stepped(total_U.where(total_U > 0, 1).pow(-self.config.alpha), _STEP)
        return weight_U, weights


def pair_sums(
    histories: HistoryTensors, weight_U: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Every ordered pair of items that users share, and the sum of these users' weights.

    Where interactions have weights, each summand is multiplied by those of both. The pairs come in
    blocks of consecutive items, sorted by item, then by the other one: two int64 and one float64
    tensor [P]. Beside the histories, sorted once by item, memory is bounded.
    """
    pairs = ItemPairs(histories, weight_U, _PAIRS_AT_ONCE)
    for items in pairs.blocks():
        item_P, other_P, sum_P = pairs.of(items)
        if len(item_P):
            yield item_P, other_P, sum_P


class ItemPairs:
    """Sums over the users of pairs of items, of a few items at a time.

    Of pairs in one history about ``at_once`` are held.
    """

    def __init__(self, histories: HistoryTensors, weight_U: Tensor, at_once: int) -> None:
        self._histories, self._at_once = histories, at_once
        order_N = torch.sort(histories.item_index, stable=True).indices
        self._user_index_N = histories.row_index()[order_N]
        self._weight_N, self._step = weight_U[self._user_index_N], 0.0
        if histories.weight is not None:
            self._weight_N = self._weight_N * histories.weight[order_N]
            self._step = summand_step(histories, weight_U)
        self._count_I = torch.bincount(histories.item_index, minlength=histories.num_items)
        self._first_entry = starts_of(self._count_I)

    def blocks(self) -> Iterator[slice]:
        """Consecutive items, together all."""
        length_N = self._histories.lengths()[self._user_index_N]
        return blocks_of(starts_of(length_N)[self._first_entry], self._at_once)

    def of(self, items: slice) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs of some items and their sums, as `pair_sums` yields them."""
        entries = slice(*self._first_entry[[items.start, items.stop]].tolist())
        if entries.start == entries.stop:
            nothing = self._first_entry[:0]
            return nothing, nothing, self._weight_N[:0]
        histories = self._histories
        rows = torch.arange(items.stop - items.start, device=histories.device)
        cell_P, sum_P = _sums_of_rows(
            histories,
            torch.repeat_interleave(rows, self._count_I[items]),
            self._user_index_N[entries],
            self._weight_N[entries],
            len(rows),
            self._at_once,
            self._step,
        )
        item_P, other_P = cell_P // histories.num_items + items.start, cell_P % histories.num_items
        # An item shares all its users with itself.
        is_pair_P = item_P != other_P
        return item_P[is_pair_P], other_P[is_pair_P], sum_P[is_pair_P]


def _sums_of_rows(
    histories: HistoryTensors,
    row_n: Tensor,
    user_index_n: Tensor,
    weight_n: Tensor,
    num_rows: int,
    at_once: int,
    step: float,
) -> tuple[Tensor, Tensor]:
    """The cells of a table [num_rows, I] to which histories add anything, and their sums.

    Entry n adds its weight to its row, in every column that its user's history has, there times
    the weight in the history, as multiples of ``step``.
    """
    num_cells = num_rows * histories.num_items
    pairs_before = starts_of(histories.lengths()[user_index_n])
    summands = (
        _cells_and_weights(histories, row_n[part], user_index_n[part], weight_n[part], step)
        for part in blocks_of(pairs_before, at_once)
    )
    # A table with few sums in it takes longer to clear and to search than the pairs to sort.
    if num_rows > 1 and num_cells > _CELLS_PER_PAIR * int(pairs_before[-1]):
        # One part has them all: several rows are together only while they have ``at_once`` pairs at
        # most.
        cell_P, weight_P = next(summands)
        cell_P, index_P = torch.unique(cell_P, return_inverse=True)
        return cell_P, weight_P.new_zeros(len(cell_P)).index_add_(0, index_P, weight_P)
    sum_C = weight_n.new_zeros(num_cells)
    for cell_P, weight_P in summands:
        sum_C.index_add_(0, cell_P, weight_P)
    cell_P = sum_C.nonzero()[:, 0]
    return cell_P, sum_C[cell_P]


def _cells_and_weights(
    histories: HistoryTensors, row_n: Tensor, user_index_n: Tensor, weight_n: Tensor, step: float
) -> tuple[Tensor, Tensor]:
    """The cell of a table [rows, I] and the weight of every pair of an entry and an item."""
    first_n, end_n = histories.offsets[user_index_n], histories.offsets[user_index_n + 1]
    entry_P, position_P = expanded(first_n, end_n)
    cell_P = row_n[entry_P] * histories.num_items + histories.item_index[position_P]
    weight_P = weight_n[entry_P]
    if histories.weight is not None:
        weight_P = stepped(weight_P * histories.weight[position_P], step)
    return cell_P, weight_P


def strongest(item_P: Tensor, weight_P: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The pairs of the k highest weights of each item, of equal ones the first, and their order.

    ``item_P`` ascends; the second tensor counts from 0 for the highest weight of an item.
    """
    # By weight, then stably by item: within an item the weights descend and equal ones keep their
    # order, so ties have one outcome.
    order_P = torch.sort(weight_P, descending=True, stable=True).indices
    order_P = order_P[torch.sort(item_P[order_P], stable=True).indices]
    place_P = _places(item_P)
    return order_P[place_P < k], place_P[place_P < k]


def _places(value_P: Tensor) -> Tensor:
    """The place of each entry among those of the same value, from 0; values ascend."""
    return torch.arange(len(value_P), device=value_P.device) - torch.searchsorted(value_P, value_P)


def expanded(first_n: Tensor, end_n: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the entry and the position, for all positions of [first_n, end_n)."""
    length_n = end_n - first_n
    entry_n = torch.arange(len(length_n), device=length_n.device)
    entry_P = torch.repeat_interleave(entry_n, length_n)
    shift_n = first_n - starts_of(length_n)[:-1]
    return entry_P, torch.arange(len(entry_P), device=length_n.device) + shift_n[entry_P]


def blocks_of(pairs_before: Tensor, at_once: int) -> Iterator[slice]:
    """Consecutive entries, of up to ``at_once`` pairs or one that has more.

    ``pairs_before`` [N + 1] is the number of pairs before each entry, then of all.
    """
    pairs_before, start = pairs_before.cpu(), 0
    while start < len(pairs_before) - 1:
        most = pairs_before[start] + at_once
        stop = int(torch.searchsorted(pairs_before, most, right=True)) - 1
        yield slice(start, stop := max(stop, start + 1))
        start = stop


def starts_of(length_N: Tensor) -> Tensor:
    """The sum of the lengths before each entry, and of all: [N + 1]."""
    return torch.cat([length_N.new_zeros(1), length_N.cumsum(0)])
