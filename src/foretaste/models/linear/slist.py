"""SLIST: EASE that predicts the next item, from steps as well as from sets.

Choi et al. 2021, "Session-aware linear item-item models for session-based recommendation", arXiv
2103.16104.

Shape suffixes: B users, I items of the catalogue, N entries of histories, W and T places of the
window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from foretaste.models.linear.config import SlistConfig
from foretaste.models.linear.pairs import Numbers, entries_of
from foretaste.models.linear.ridge import RidgeModel
from foretaste.models.scorer import BaseScorer, OrderedScorer, Scorer
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


class Slist(RidgeModel):
    """Scores an item by the weights of the last items towards it; newer items count more.

    A user's items are x_1 to x_L, the newest last. The source of step t is ``s_t = sum over d of
    (1 + d)^-recency e(x_(t-d))`` for d below the window, its target ``e(x_(t+1))``. With S and
    T all sources and targets, and X the sets of items as in EASE, the weights B have a zero
    diagonal and minimise ``|T - SB|² + set_weight |X - XB|² + l2 |B|²``: the ridge with
    ``G = SᵀS + set_weight XᵀX`` and ``A = SᵀT + set_weight XᵀX``. A score is ``s_L B``.
    """

    name = "slist"
    config_class = SlistConfig
    # X'X, S'S and T'S in float64, B, and parts; G and A take the places of two.
    bytes_per_pair = 29
    counted_by = ("recency", "window")

    @property
    def set_weight(self) -> float:  # type: ignore[override]
        weight: float = self.config.set_weight
        return weight

    def entries(self, histories: HistoryTensors) -> Entries:
        decay_W = (1.0 + np.arange(self.config.window)) ** -self.config.recency
        # Each user and each interaction counts alike.
        ones = np.ones(len(histories)), np.ones(histories.item_index.numel())
        return entries_of(histories, *ones, decay_W)

    def penalties(self, diagonal_I: Numbers) -> Numbers:
        return np.full(len(diagonal_I), float(self.config.l2))

    def history_weights(self, histories: HistoryTensors) -> Tensor:
        """Return the source of each history: zero for items that lie behind the window."""
        return _recent(histories.places_back(), self.config)

    def scorer(self, *, known_users: bool) -> BaseScorer:
        return _RecentScorer(self.weight_scorer(), self.config, self.num_items)


class _RecentScorer(OrderedScorer):
    """The weights of the newest items for the scorer of the sum."""

    def __init__(self, scorer: Scorer, config: SlistConfig, num_items: int) -> None:
        super().__init__()
        self.scorer, self.config, self.num_items = scorer, config, num_items
        self.max_length = config.window

    def forward(self, item_index_BT: Tensor, length_B: Tensor) -> Tensor:
        place_BT = length_B[:, None] - torch.arange(self.max_length)
        source_BI = torch.zeros(item_index_BT.shape[0], self.num_items)
        # Places behind the last item add 0 to item 0.
        source_BI = source_BI.scatter_add(1, item_index_BT, _recent(place_BT, self.config))
        scores_BI: Tensor = self.scorer(source_BI, None)
        return scores_BI


def _recent(place: Tensor, config: Any) -> Tensor:
    """Return the weights of items in a source by place from the end, 1 the newest and 0 none."""
    place = place.to(torch.float32)
    is_recent = (place > 0) & (place <= config.window)
    return place.clamp(min=1.0).pow(-config.recency).where(is_recent, 0.0)
