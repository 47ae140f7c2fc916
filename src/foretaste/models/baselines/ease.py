"""EASE: a linear item-to-item model in closed form.

Steck 2019, arXiv 1905.03375; with dropout of the histories EDLAE: Steck 2020, "Autoencoders that
don't overfit towards the Identity".

Shape suffixes: B users, I items of the catalogue, c users of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste._util.formatting import memory
from foretaste.models.base import FitProgress, RecommenderModel, UserState
from foretaste.models.baselines.config import EaseConfig
from foretaste.models.baselines.item_weights import (
    BELOW_ZERO,
    CELLS_AT_ONCE,
    ItemWeightsModel,
    nothing_to_solve,
    user_weights,
    users_of_items,
)
from foretaste.models.baselines.neighbors import pair_sums
from foretaste.models.baselines.sparse_ease import SparseEase
from foretaste.models.scorer import Scorer
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.inverse import invert_
from foretaste.ops.segments import sum_bags

_FIT_BYTES = 13
"""Of each item pair while fitting: the float32 weights, the float64 matrix that is inverted in its
place, and parts of both."""

_MULTIPLIED_PER_PAIR = 8192
"""A CPU of two cores does so many products of a matrix multiplication in the time that it takes to
count one pair of a history."""


class Ease(ItemWeightsModel):
    """Scores an item by the summed weights towards it of the items in the history.

    X are the users' histories, of 1 or of weights. Z are the same with a share ``dropout`` of the
    entries dropped and the others scaled up. The weights W have a zero diagonal and minimise
    ``|X - ZW|² + l2 |W|²``, on average over all ways to drop. For ``G = XᵀX``, its diagonal D and
    ``P = (G + dropout / (1 - dropout) D + l2)⁻¹`` they are ``W[i, j] = -P[i, j] / P[j, j]``:
    equations 8 and 9 of Steck 2020. With a ``user_power`` the errors of users with many items weigh
    less, and G is the weighted sum over users.
    """

    name = "ease"
    config_class = EaseConfig
    memory_advice = (
        "learn the weights of a few neighbours of each item (--neighbors 100), or keep fewer items "
        "(--min-item-users)"
    )

    def __init__(self, config: EaseConfig, num_users: int, num_items: int) -> None:
        super().__init__(config, num_users, num_items)
        self.weight_II: Tensor
        self.register_buffer("weight_II", torch.zeros(num_items, num_items))

    @classmethod
    def class_for(cls, config: EaseConfig) -> type[RecommenderModel]:
        return SparseEase if isinstance(config.neighbors, int) else cls

    def training_bytes(self, device: torch.device) -> int:
        return self.num_items**2 * _FIT_BYTES

    def fitting_note(self) -> str:
        size = f"{self.num_items:,}"
        needed = memory(self.training_bytes(self.device))
        return f"inverting a {size} × {size} matrix, which takes about {needed} of memory"

    @torch.no_grad()
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories; TrainingError where ``l2`` is too small for them."""
        self.count_items(histories)
        weight_U = user_weights(histories, self.config.user_power)
        self._count_pairs(histories, weight_U, progress)
        dropout = self.config.dropout
        penalty_I = self.config.l2 + dropout / (1 - dropout) * self.weight_II.diagonal().double()
        # In float64: beside the counts of popular items float32 would round a small penalty away.
        precision_II = self.weight_II.double()
        precision_II.diagonal().add_(penalty_I)
        try:
            invert_(precision_II, lambda done: progress("inverting", done, self.num_items))
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise nothing_to_solve(self.config.l2) from error
        # By columns: W = -P / diag(P), for P the inverse.
        # The minus makes a copy of the diagonal, which `div_` writes over.
        self.weight_II.copy_(precision_II.div_(-precision_II.diagonal()))
        self.weight_II.fill_diagonal_(0.0)

    def _count_pairs(
        self, histories: HistoryTensors, weight_U: Tensor, progress: FitProgress
    ) -> None:
        """Set the weights to G: for each pair of items, the sum of the weights of their users.

        Sparse data are counted pair by pair, dense data by matrix products. Both give the same
        counts where every user has the same weight.
        """
        num_users, num_items = len(histories), self.num_items
        self.weight_II.zero_()
        # A history of n items has n² ordered pairs, each item with itself among them.
        num_pairs = float(histories.lengths().double().square().sum())
        if num_pairs * _MULTIPLIED_PER_PAIR < num_users * num_items**2:
            for item_P, other_P, count_P in pair_sums(histories, weight_U):
                self.weight_II[item_P, other_P] = count_P.float()
                progress("counting pairs of items", int(item_P[-1]) + 1, num_items)
            self.weight_II.diagonal().copy_(users_of_items(histories, weight_U))
            return
        users_at_once = max(1, CELLS_AT_ONCE // num_items)
        for start in range(0, num_users, users_at_once):
            part = slice(start, start + users_at_once)
            dense_cI = histories[part].to_dense()
            self.weight_II.addmm_(dense_cI.T * weight_U[part].float(), dense_cI)
            progress("counting pairs of items", min(start + users_at_once, num_users), num_users)

    def _weights_added(self, histories: HistoryTensors) -> Tensor:
        return sum_bags(self.weight_II, histories.item_index, histories.offsets)

    def _score_catalogue(self, state: UserState) -> Tensor:
        # Items of weight zero go by popularity, above every weight below zero.
        score_BI = super()._score_catalogue(state)
        return score_BI.add_(self.by_popularity_below_zero(), alpha=BELOW_ZERO)

    def scorer(self, *, known_users: bool) -> Scorer:
        return _WeightScorer(self.weight_II, BELOW_ZERO * self.by_popularity_below_zero())


class _WeightScorer(Scorer):
    def __init__(self, weight_II: Tensor, without_I: Tensor) -> None:
        super().__init__()
        self.weight_II: Tensor
        self.without_I: Tensor
        self.register_buffer("weight_II", weight_II)
        self.register_buffer("without_I", without_I)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        return known_BI @ self.weight_II + self.without_I
