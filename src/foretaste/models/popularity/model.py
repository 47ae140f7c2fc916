"""Popularity: every user is shown what most users have."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from foretaste.models.base import ClosedFormModel, FitProgress, UserState
from foretaste.models.popularity.config import PopularityConfig
from foretaste.models.scorer import Scorer
from foretaste.ops.histories import HistoryTensors


class Popularity(ClosedFormModel):
    """Scores an item by the number of training users that have it, or by their summed weights."""

    name = "popularity"
    config_class = PopularityConfig

    def __init__(
        self, config: PopularityConfig, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        self.weight_I: Tensor | None
        # Beside the counts, which measures of lists read. None, and in no file, if it equals them.
        self.register_buffer("weight_I", None)

    def expect(self, weights: Mapping[str, Tensor]) -> None:
        if "weight_I" in weights:
            # On the meta device, `zeros_like` imports sympy (1.6 s); a clone has the same shape.
            self.weight_I = self.item_count_I.clone()

    def popularity(self) -> Tensor:
        """Return scores of the items, for everyone, [I]."""
        return self.item_count_I if self.weight_I is None else self.weight_I

    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        self.count_items(histories)
        if histories.weight is not None:
            # On the CPU: a GPU would add up in another order each time.
            item_N, weight_N = histories.item_index.cpu(), histories.weight.cpu().double()
            weight_I = torch.bincount(item_N, weight_N, self.num_items).float().to(self.device)
            self.weight_I = None if torch.equal(weight_I, self.item_count_I) else weight_I

    def _new_users(self, histories: HistoryTensors) -> tuple[()]:
        return ()

    def _score_catalogue(self, state: UserState) -> Tensor:
        return self.popularity().repeat(len(state), 1)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self.popularity()[item_index_BK]

    def scorer(self, *, known_users: bool) -> Scorer:
        return _SameScorer(self.popularity())


class _SameScorer(Scorer):
    def __init__(self, score_I: Tensor) -> None:
        super().__init__()
        self.score_I: Tensor
        self.register_buffer("score_I", score_I)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        return self.score_I.expand_as(known_BI)
