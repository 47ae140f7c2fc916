"""Base of the models that score an item by weights from the items of the history.

Shape suffixes: B users, K candidates per user, I items of the catalogue, c users of a chunk.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from foretaste.errors import TrainingError, UnsupportedError
from foretaste.models.base import ClosedFormModel, UserState
from foretaste.ops.histories import HistoryTensors

CELLS_AT_ONCE = 1 << 24
"""Users times items whose scores are held at once."""

BELOW_ZERO = 2.0**-100
"""Factor of scores by popularity for items that the history says nothing of. Added to a sum of
weights it changes none but zero, and divided by a count of users it is still normal in float32."""

_USER_STEP = 2.0**-12
"""Weights of users are multiples of it."""

_SUMMAND_EXPONENT = -37
"""Summands are multiples of a step, so many powers of two below the power that exceeds the largest
of them. float64 has 53 bits, which leaves 2¹⁶ for their number."""


def user_weights(histories: HistoryTensors, power: float) -> Tensor:
    """Weights [U], float64, of users with n items: ``n ** -power``, scaled so that the items' mean
    number of users is unchanged (DAN: Park et al. 2025, arXiv 2504.05805)."""
    length_U = histories.lengths().double()
    weight_U = length_U.clamp(min=1).pow(-power)
    if num_entries := histories.item_index.numel():
        weight_U *= num_entries / (length_U * weight_U).sum()
    # Multiples of a step: float32 sums of them are exact up to 4,096, in whatever order.
    return weight_U.div_(_USER_STEP).round_().clamp_(min=1).mul_(_USER_STEP)


def users_of_items(histories: HistoryTensors, weight_U: Tensor) -> Tensor:
    """The diagonal of ``X'VX``, for V the weights of the users: [I], float64. Where histories have
    no weights, it is the sum of the weights of each item's users."""
    weight_N = weight_U[histories.row_index()]
    if histories.weight is not None:
        weight_N = stepped(
            weight_N * histories.weight.double().square(), summand_step(histories, weight_U)
        )
    return torch.bincount(histories.item_index, weight_N, minlength=histories.num_items)


def summand_step(histories: HistoryTensors, weight_U: Tensor) -> float:
    """The step of summands ``v x_i x_j`` of histories with weights: float64 sums of them, up to
    2¹⁶ of the largest, are exact in whatever order."""
    assert histories.weight is not None
    largest = float(weight_U.max()) * float(histories.weight.max()) ** 2  # sync
    return 2.0 ** (math.frexp(largest)[1] + _SUMMAND_EXPONENT)


def stepped(values: Tensor, step: float) -> Tensor:
    """The nearest multiples of ``step``."""
    return (values / step).round_() * step


class ItemWeightsModel(ClosedFormModel):
    """A model of weights between items: its knowledge of a user is the history."""

    def __init__(self, config: Any, num_users: int, num_items: int) -> None:
        super().__init__(config.resolved(num_items), num_users, num_items)

    def item_vectors(self) -> Tensor:
        raise UnsupportedError(
            f"{self.name} has no vectors of items, only weights between them; "
            "train ials, neumf or vae for them"
        )

    @torch.no_grad()
    def similarity(self, item_index_B: Tensor, item_index_C: Tensor | None = None) -> Tensor:
        """Similarity [B, C], or [B, I]: the learned weight of an item towards another, -inf where
        it is not above 0."""
        offsets = torch.arange(item_index_B.numel() + 1, device=self.device)
        single = HistoryTensors(offsets, item_index_B.int(), self.num_items)
        weight_BI = self._weights_added(single)
        weight_BI = weight_BI.masked_fill(weight_BI <= 0, -torch.inf)
        return weight_BI if item_index_C is None else weight_BI[:, item_index_C]

    def _weights_added(self, histories: HistoryTensors) -> Tensor:
        """The weights [B, I] of the items of each history towards every item, added up."""
        raise NotImplementedError

    def by_popularity_below_zero(self) -> Tensor:
        """Scores [I] of items without a relation to the history: below zero, by popularity."""
        # -1 / (1 + n) rises with n and stays below 0.
        return (1 + self.item_count_I).reciprocal_().neg_()

    def _known_users(
        self, user_index_B: Tensor, histories: HistoryTensors
    ) -> tuple[HistoryTensors]:
        return (histories,)

    def _new_users(self, histories: HistoryTensors) -> tuple[HistoryTensors]:
        return (histories,)

    def _score_catalogue(self, state: UserState) -> Tensor:
        (histories,) = state.parts
        assert isinstance(histories, HistoryTensors)
        return self._weights_added(histories)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        scores_BK = torch.empty(item_index_BK.shape, device=self.device)
        users_at_once = max(1, CELLS_AT_ONCE // self.num_items)
        for start in range(0, len(state), users_at_once):
            rows = slice(start, start + users_at_once)
            # Weights are stored by the item of the history, so all scores of a user come at once: a
            # few candidates cost as much as the catalogue.
            scores_cI = self._score_catalogue(state[rows])
            scores_BK[rows] = scores_cI.gather(1, item_index_BK[rows].long())
        return scores_BK


def nothing_to_solve(l2: float) -> TrainingError:
    """The error where ``l2`` is too small for items of the same users."""
    return TrainingError(
        f"items of the same users leave nothing to solve with l2 {l2:g}; raise --l2"
    )
