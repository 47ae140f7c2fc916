"""Popularity: every user is shown what most users have."""

from __future__ import annotations

from torch import Tensor

from foretaste.models.base import ClosedFormModel, FitProgress, UserState
from foretaste.models.popularity.config import PopularityConfig
from foretaste.models.scorer import Scorer
from foretaste.ops.histories import HistoryTensors


class Popularity(ClosedFormModel):
    """Scores an item by the number of training users that have it."""

    name = "popularity"
    config_class = PopularityConfig

    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        self.count_items(histories)

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[()]:
        return ()

    def _new_users(self, histories: HistoryTensors) -> tuple[()]:
        return ()

    def _score_catalogue(self, state: UserState) -> Tensor:
        return self.item_count_I.repeat(len(state), 1)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self.item_count_I[item_index_BK]

    def scorer(self, *, known_users: bool) -> Scorer:
        return _CountScorer(self.item_count_I)


class _CountScorer(Scorer):
    def __init__(self, count_I: Tensor) -> None:
        super().__init__()
        self.count_I: Tensor
        self.register_buffer("count_I", count_I)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        return self.count_I.expand_as(known_BI)
