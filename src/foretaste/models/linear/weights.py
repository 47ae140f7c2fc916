"""Base of the models that score an item by weights from the items of the history.

Shape suffixes: B users, K candidates of a user or neighbours of an item, I items of the catalogue,
c users or items of a chunk, N entries of histories, P pairs of an entry and a target, M pairs of an
item and a target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from foretaste._util.formatting import memory, pluralize
from foretaste.errors import UnsupportedError
from foretaste.models.base import ClosedFormModel, UserState
from foretaste.models.scorer import BaseScorer, Scorer, item_chunks
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.segments import sum_bags

_COMPILER_BYTES = 190 << 20
"""Memory of Numba and of what it compiles."""

_BYTES_PER_ITEM = 32
"""Sums of a row of pairs, and the list of these pairs, in each thread that fits."""

_BYTES_PER_INTERACTION = 56
"""The entries that the loops over pairs read, and what is held while they are sorted."""

MOST_COUNTED = 10_000
"""Items of a history whose pairs are counted; the pairs grow with the square of their number."""


class LinearModel(ClosedFormModel):
    """A model of weights between items: its knowledge of a user is the history.

    It has weights of all pairs, or of the neighbours of each item. Items of which the history says
    nothing follow by popularity.
    """

    memory_advice = (
        "keep fewer neighbours of each item (--neighbors 100), or keep fewer items "
        "(--min-item-users)"
    )

    unrelated_scale = 1.0
    """Factor of the scores, below zero, of items of which the history says nothing."""

    def __init__(self, config: Any, num_users: int, num_items: int) -> None:
        super().__init__(config.resolved(num_items), num_users, num_items)
        self.has_all_pairs: bool = self.config.neighbors == "all"
        if self.has_all_pairs:
            self.weight_II: Tensor
            self.register_buffer("weight_II", torch.zeros(num_items, num_items))
            return
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

    def training_bytes(self, device: torch.device) -> int:
        """Return the memory of fitting, besides the histories and the entries made of them."""
        rows = _BYTES_PER_ITEM * torch.get_num_threads() * self.num_items
        # Each neighbour has an index and a weight, again in the model.
        found = 0 if self.has_all_pairs else 8 * self.num_items * self.num_neighbors
        return self.weight_bytes() + _COMPILER_BYTES + rows + found

    def fitting_needs(self, histories: HistoryTensors) -> str:
        """Return the memory of fitting beside the histories, and what is left out, in words."""
        entries = _BYTES_PER_INTERACTION * histories.item_index.numel()
        needs = f"which takes about {memory(self.training_bytes(self.device) + entries)} of memory"
        if num_long := int((histories.lengths() > MOST_COUNTED).sum()):
            kept = "items by a hash" if histories.position is None else "newest items"
            users = pluralize(num_long, "user")
            needs += f"; the {MOST_COUNTED:,} {kept} of {users} with more items are counted"
        return needs

    def keep_neighbors(
        self, other_IK: NDArray[np.int32], weight_IK: NDArray[np.float32], *, by_source: bool
    ) -> None:
        """Keep the weights towards the items of rows, or from them; a weight of zero means none."""
        from foretaste.models.linear.kernels import group_by_other

        buffers = self.first_target_I, self.target_M, self.weight_M
        first_target_I, target_M, weight_M = filled = [one.cpu().zero_() for one in buffers]
        if by_source:
            is_one_IK = weight_IK != 0
            first_target_I[1:] = torch.from_numpy(is_one_IK.sum(1).cumsum())
            target_M[: first_target_I[-1]] = torch.from_numpy(other_IK[is_one_IK])
            weight_M[: first_target_I[-1]] = torch.from_numpy(weight_IK[is_one_IK])
        else:
            group_by_other(other_IK, weight_IK, *(one.numpy() for one in filled))
        for buffer, values in zip(buffers, filled, strict=True):
            buffer.copy_(values)

    def item_vectors(self) -> Tensor:
        raise UnsupportedError(
            f"{self.name} has no vectors of items, only weights between them; "
            "train ials, neumf or vae for them"
        )

    @torch.no_grad()
    def similarity(self, item_index_B: Tensor, item_index_C: Tensor | None = None) -> Tensor:
        """Return the similarity [B, C], or [B, I]: the learned weight of an item towards another,
        -inf if it is not above 0. An item that nobody has is similar to those with a weight towards
        it."""
        offsets = torch.arange(item_index_B.numel() + 1, device=self.device)
        single = HistoryTensors(offsets, item_index_B.int(), self.num_items)
        weight_BI = self._sum_weights(single, None)
        is_new_B = self.item_count_I[item_index_B] == 0
        if bool(is_new_B.any()):  # sync: only new items need the weights of all items
            weight_BI[is_new_B] = self.weights_towards(item_index_B[is_new_B])
        weight_BI.masked_fill_(weight_BI <= 0, -torch.inf)
        return weight_BI if item_index_C is None else weight_BI[:, item_index_C]

    def _sum_weights(self, histories: HistoryTensors, factor_N: Tensor | None) -> Tensor:
        """Return the weights [B, I] of the items of each history towards every item, added up."""
        if self.has_all_pairs:
            return sum_bags(self.weight_II, histories.item_index, histories.offsets, factor_N)
        # In float64, so that the order of a history's items does not show.
        shape = len(histories), self.num_items
        score_BI = torch.zeros(shape, dtype=torch.float64, device=self.device)
        first_cell_N = histories.row_index() * self.num_items
        item_N = histories.item_index.long()
        first_N, end_N = self.first_target_I[item_N], self.first_target_I[item_N + 1]
        for part in _blocks(end_N - first_N):
            length_n = end_N[part] - first_N[part]
            entry_P = torch.repeat_interleave(length_n)
            shift_n = first_N[part] - F.pad(length_n.cumsum(0), (1, 0))[:-1]
            place_P = torch.arange(len(entry_P), device=self.device) + shift_n[entry_P]
            cell_P = first_cell_N[part][entry_P] + self.target_M[place_P]
            weight_P = self.weight_M[place_P].double()
            if factor_N is not None:
                weight_P *= factor_N[part][entry_P]
            score_BI.view(-1).index_add_(0, cell_P, weight_P)
        return score_BI.float()

    def knows(self, histories: HistoryTensors) -> Tensor:
        """Return True for histories [B] with an item that training saw or that has a weight towards
        another. With a few neighbours, a new item has no weight towards another."""
        if self.has_all_pairs:
            return super().knows(histories)
        item_N = histories.item_index.long()
        has_target_N = self.first_target_I[item_N + 1] > self.first_target_I[item_N]
        says_N = (self.item_count_I[item_N] > 0) | has_target_N
        num_said = F.pad(says_N.cumsum(0), (1, 0))
        return num_said[histories.offsets].diff() > 0

    def weights_towards(self, item_index_B: Tensor) -> Tensor:
        """Return the weights [B, I] of every item towards the given ones."""
        if self.has_all_pairs:
            return self.weight_II[:, item_index_B].T
        item_C, place_B = torch.unique(item_index_B, return_inverse=True)
        place_I = torch.full((self.num_items,), -1, dtype=torch.int32, device=self.device)
        place_I[item_C] = torch.arange(len(item_C), dtype=torch.int32, device=self.device)
        # In 32 bits, and sources for the entries that are found alone: there are M entries.
        place_M = place_I[self.target_M[: int(self.first_target_I[-1])]]
        entry_N = (place_M >= 0).nonzero()[:, 0]
        source_N = torch.searchsorted(self.first_target_I, entry_N, right=True) - 1
        weight_CI = torch.zeros(len(item_C), self.num_items, device=self.device)
        weight_CI[place_M[entry_N].long(), source_N] = self.weight_M[entry_N]
        return weight_CI[place_B]

    def unrelated_scores(self) -> Tensor:
        """Return scores [I] of items of which the history says nothing."""
        # -1 / (1 + n) rises with n and stays below 0.
        return (1 + self.item_count_I).reciprocal_().mul_(-self.unrelated_scale)

    def _new_users(self, histories: HistoryTensors) -> tuple[HistoryTensors]:
        return (histories,)

    def _score_catalogue(self, state: UserState) -> Tensor:
        (histories,) = state.parts
        assert isinstance(histories, HistoryTensors)
        score_BI = self._sum_weights(histories, self.history_weights(histories))
        # A sum of exactly 0 comes from items without a weight towards this one.
        return torch.where(score_BI != 0, score_BI, self.unrelated_scores())

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        scores_BK = torch.empty(item_index_BK.shape, device=self.device)
        users_at_once = max(1, LIMITS[self.device.type].catalogue_scores // self.num_items)
        for start in range(0, len(state), users_at_once):
            rows = slice(start, start + users_at_once)
            # Weights are stored by the item of the history, so all scores of a user come at once: a
            # few candidates cost as much as the catalogue.
            scores_cI = self._score_catalogue(state[rows])
            scores_BK[rows] = scores_cI.gather(1, item_index_BK[rows].long())
        return scores_BK

    def scorer(self, *, known_users: bool) -> BaseScorer:
        return self.weight_scorer()

    def weight_scorer(self) -> Scorer:
        """Return the scores of histories of ones, or of other weights of their items."""
        if self.has_all_pairs:
            return _WeightScorer(self.weight_II, self.unrelated_scores())
        source_M = torch.repeat_interleave(self.first_target_I.diff())
        target_M, order_M = torch.sort(self.target_M[: len(source_M)], stable=True)
        count_I = torch.bincount(target_M, minlength=self.num_items)
        first_I = F.pad(count_I.cumsum(0), (1, 0))
        place_M = torch.arange(len(target_M), device=self.device) - first_I[target_M.long()]
        shape = self.num_items, max(1, int(count_I.max()))
        source_IK = torch.zeros(shape, dtype=torch.int64, device=self.device)
        source_IK[target_M, place_M] = source_M[order_M]
        weight_IK = torch.zeros(shape, dtype=torch.float64, device=self.device)
        weight_IK[target_M, place_M] = self.weight_M[order_M].double()
        return _NeighborScorer(source_IK, weight_IK, self.unrelated_scores())


def _blocks(length_N: Tensor) -> Iterator[slice]:
    """Yield consecutive entries with at most that many pairs together, or one entry with more."""
    before_N = F.pad(length_N.cumsum(0), (1, 0)).cpu()
    start = 0
    while start < len(length_N):
        most = before_N[start] + LIMITS[length_N.device.type].neighbor_pairs
        stop = int(torch.searchsorted(before_N, most, right=True)) - 1
        yield slice(start, stop := max(stop, start + 1))
        start = stop


class _WeightScorer(Scorer):
    """Weights of all pairs."""

    def __init__(self, weight_II: Tensor, unrelated_I: Tensor) -> None:
        super().__init__()
        self.weight_II: Tensor
        self.unrelated_I: Tensor
        self.register_buffer("weight_II", weight_II)
        self.register_buffer("unrelated_I", unrelated_I)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        score_BI = known_BI @ self.weight_II
        return torch.where(score_BI != 0, score_BI, self.unrelated_I)


class _NeighborScorer(Scorer):
    """The neighbours of each item, filled up by weights of zero."""

    def __init__(self, source_IK: Tensor, weight_IK: Tensor, unrelated_I: Tensor) -> None:
        super().__init__()
        self.source_IK: Tensor
        self.weight_IK: Tensor
        self.unrelated_I: Tensor
        self.register_buffer("source_IK", source_IK)
        self.register_buffer("weight_IK", weight_IK)
        self.register_buffer("unrelated_I", unrelated_I)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        num_items, width = self.source_IK.shape
        parts = []
        for items in item_chunks(num_items, 2 * width):
            source_n = self.source_IK[items].flatten()
            shape = known_BI.shape[0], items.stop - items.start, width
            known_BcK = known_BI.index_select(1, source_n).view(shape)
            parts.append((known_BcK * self.weight_IK[items]).sum(2))
        score_BI = torch.cat(parts, dim=1).float()
        return torch.where(score_BI != 0, score_BI, self.unrelated_I)
