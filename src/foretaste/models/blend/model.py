"""Blend: a weighted sum of the scores of several models.

Scores of different models have different scales: the logarithm of a likelihood, a probability, a
count. Each is first measured in standard deviations from the mean of the user's scores of the whole
catalogue. These statistics are part of the user state, so that an item scores the same among
candidates as in the catalogue. If a model lists fewer items than the blend, its statistics cover
its own items only, and every other item gets its lowest score. A model adds nothing for users whose
history tells it nothing.

Shape suffixes: B users, K candidates per user, I items of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from foretaste.errors import UnsupportedError
from foretaste.models.base import (
    ComposedModel,
    FitProgress,
    RecommenderModel,
    StateParts,
    UserState,
)
from foretaste.models.blend.config import BlendConfig
from foretaste.models.registry import build_model
from foretaste.models.scorer import BaseScorer, ScorerInputs
from foretaste.ops.forks import survive_forks
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS

_NO_VECTORS = "blend has no vectors of its own; take those of a run that it was made of"


class Blend(ComposedModel):
    """The models of other runs, with their weights, and the sum of their scores."""

    name = "blend"
    config_class = BlendConfig

    def __init__(self, config: BlendConfig, num_users: int, num_items: int) -> None:
        super().__init__(config, num_users, num_items)
        self.members = nn.ModuleList()
        for member in config.members.values():
            num_own = member.num_items or num_items
            model = build_model(member.model, member.model_config(), num_users, num_own)
            self.members.append(model)

    def run_paths(self) -> Sequence[str]:
        return [member.run for member in self.config.members.values()]

    def compose(self, models: Sequence[RecommenderModel]) -> None:
        # Keep the models themselves: with copies the weights would be in memory twice.
        self.members = nn.ModuleList(models)

    def expect(self, weights: Mapping[str, Tensor]) -> None:
        for number, model in enumerate(self.members):
            assert isinstance(model, RecommenderModel)
            prefix = f"members.{number}."
            own = {
                name.removeprefix(prefix): weights[name]
                for name in weights
                if name.startswith(prefix)
            }
            model.expect(own)

    def take_features(self, features: HistoryTensors) -> None:
        """Hand the items of each feature value on to the models whose answers read them."""
        for model in self.members:
            one: Any = model
            if one.config.keeps_features:
                one.take_features(features)

    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        self.count_items(histories)

    @torch.no_grad()
    def similarity(self, item_index_B: Tensor, item_index_C: Tensor | None = None) -> Tensor:
        """Return the similarity [B, C], or [B, I]: the weighted sum of the models' similarities,
        each in standard deviations; -inf if no model finds a relation."""
        found, is_related_BI = [], torch.zeros(1, dtype=torch.bool, device=self.device)
        for model, weight in self._weighted_models():
            is_own_B = item_index_B < model.num_items
            scores_BI = item_index_B.new_full(
                (len(is_own_B), self.num_items), -torch.inf, dtype=torch.float32
            )
            try:
                scores_BI[is_own_B, : model.num_items] = model.similarity(item_index_B[is_own_B])
            except UnsupportedError:
                continue
            is_related_BI = is_related_BI | (scores_BI > -torch.inf)
            scores_BI = scores_BI.masked_fill(scores_BI == -torch.inf, 0.0)
            mean_B1, deviation_B1 = _statistics(scores_BI)
            found.append((scores_BI - mean_B1) * (weight / deviation_B1))
        if not found:
            raise UnsupportedError("none of the models of this blend knows which items are similar")
        total_BI = torch.stack(found).sum(0).masked_fill(~is_related_BI, -torch.inf)
        return total_BI if item_index_C is None else total_BI[:, item_index_C]

    def knows(self, histories: HistoryTensors) -> Tensor:
        is_known_B = torch.zeros(len(histories), dtype=torch.bool, device=self.device)
        for model, member in zip(self.members, self.config.members.values(), strict=True):
            assert isinstance(model, RecommenderModel)
            if member.weight > 0.0:
                is_known_B |= model.knows(histories.within(model.num_items))
        return is_known_B

    def history_weights(self, histories: HistoryTensors) -> Tensor | None:
        """Return the mean weight of each item over the models, by how much each model counts."""
        found = [
            (model.history_weights(histories), weight) for model, weight in self._weighted_models()
        ]
        if all(weight_N is None for weight_N, _ in found):
            return None
        sum_N = sum(weight if weight_N is None else weight * weight_N for weight_N, weight in found)
        total = sum(weight for _, weight in found)
        assert isinstance(sum_N, Tensor)
        return sum_N / total

    def item_vectors(self) -> Tensor:
        raise UnsupportedError(_NO_VECTORS)

    def user_vectors(self, state: UserState) -> Tensor:
        raise UnsupportedError(_NO_VECTORS)

    @property
    def scores_known_users_only(self) -> bool:  # type: ignore[override]
        return any(model.scores_known_users_only for model, _ in self._weighted_models())

    def scorer(self, *, known_users: bool) -> BaseScorer:
        scorers = [
            _MemberScorer(model, weight, model.scorer(known_users=known_users), self.num_items)
            for model, weight in self._weighted_models()
        ]
        return _BlendScorer(scorers)

    def _weighted_models(self) -> Iterator[tuple[RecommenderModel, float]]:
        """Yield the models that have a weight, with it."""
        for model, member in zip(self.members, self.config.members.values(), strict=True):
            assert isinstance(model, RecommenderModel)
            if member.weight > 0.0:
                yield model, member.weight

    @property
    def keeps_user_rows(self) -> bool:  # type: ignore[override]
        return any(model.keeps_user_rows for model, _ in self._weighted_models())

    def user_state(
        self,
        user_index_B: Tensor,
        histories: HistoryTensors,
        is_grown_B: Tensor | None = None,
    ) -> UserState:
        survive_forks()
        states = [
            model.user_state(user_index_B, histories.within(model.num_items), is_grown_B)
            for model, _ in self._weighted_models()
        ]
        parts = self._parts(states)
        return UserState(self.knows(histories), parts)

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> StateParts:
        return self.user_state(user_index_B, histories).parts

    def _new_users(self, histories: HistoryTensors) -> StateParts:
        each = [(model, histories.within(model.num_items)) for model, _ in self._weighted_models()]
        return self._parts([model.fold_in(own) for model, own in each])

    @torch.no_grad()
    def _parts(self, states: Sequence[UserState]) -> StateParts:
        """For each model its state, then mean, deviation and lowest of its scores of its items."""
        parts: list[UserState | Tensor] = []
        users_at_once = max(1, LIMITS[self.device.type].catalogue_scores // self.num_items)
        for (model, _), state in zip(self._weighted_models(), states, strict=True):
            mean_B1 = torch.empty(len(state), 1, device=self.device)
            deviation_B1, lowest_B1 = torch.empty_like(mean_B1), torch.empty_like(mean_B1)
            for start in range(0, len(state), users_at_once):
                rows = slice(start, start + users_at_once)
                scores_BI = model.score_catalogue(state[rows])
                mean_B1[rows], deviation_B1[rows] = _statistics(scores_BI)
                lowest_B1[rows] = scores_BI.amin(1, keepdim=True)
            parts += [state, mean_B1, deviation_B1, lowest_B1]
        return tuple(parts)

    def standardize(self, state: UserState, item_index_BK: Tensor | None) -> Iterator[Tensor]:
        """Standardised scores of each weighted model, of candidates [B, K] or all [B, I]."""
        for number, (model, _) in enumerate(self._weighted_models()):
            own, mean_B1, deviation_B1, lowest_B1 = state.parts[4 * number : 4 * number + 4]
            assert isinstance(own, UserState)
            assert isinstance(mean_B1, Tensor)
            assert isinstance(deviation_B1, Tensor)
            assert isinstance(lowest_B1, Tensor)
            if item_index_BK is None:
                scores = _with_others(model.score_catalogue(own), lowest_B1, self.num_items)
            else:
                is_own_BK = item_index_BK < model.num_items
                scores = model.score_candidates(own, item_index_BK.where(is_own_BK, 0))
                scores = scores.where(is_own_BK, lowest_B1)
            scores = (scores - mean_B1).div_(deviation_B1)
            yield scores.masked_fill_(~own.has_history_B[:, None], 0.0)

    def _score_catalogue(self, state: UserState) -> Tensor:
        return self._sum(state, None)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self._sum(state, item_index_BK)

    def _sum(self, state: UserState, item_index_BK: Tensor | None) -> Tensor:
        num_columns = self.num_items if item_index_BK is None else item_index_BK.shape[1]
        total = torch.zeros(len(state), num_columns, device=self.device)
        weights = [weight for _, weight in self._weighted_models()]
        for weight, scores in zip(weights, self.standardize(state, item_index_BK), strict=True):
            total.add_(scores, alpha=weight)
        return total


class _MemberScorer(BaseScorer):
    """Return what a model adds to the scores of a blend with that number of items."""

    def __init__(
        self, model: RecommenderModel, weight: float, scorer: BaseScorer, num_items: int
    ) -> None:
        super().__init__()
        self.num_own, self.weight, self.scorer = model.num_items, weight, scorer
        self.is_known_I: Tensor
        num_others = num_items - model.num_items
        self.register_buffer("is_known_I", nn.functional.pad(model.known_items(), (0, num_others)))

    def scores(self, users: ScorerInputs) -> Tensor:
        scores_BI = self.scorer.scores(users.within(self.num_own))
        mean_B1, deviation_B1 = _statistics(scores_BI)
        lowest_B1 = scores_BI.amin(1, keepdim=True)
        scores_BI = _with_others(scores_BI, lowest_B1, users.num_items)
        scores_BI = (scores_BI - mean_B1) * (self.weight / deviation_B1)
        return scores_BI.masked_fill(~users.has_any(self.is_known_I)[:, None], 0.0)


class _BlendScorer(BaseScorer):
    def __init__(self, scorers: Sequence[_MemberScorer]) -> None:
        super().__init__()
        self.scorers = nn.ModuleList(scorers)

    def scores(self, users: ScorerInputs) -> Tensor:
        total_BI = torch.zeros_like(users.known)
        for scorer in self.scorers:
            assert isinstance(scorer, _MemberScorer)
            total_BI = total_BI + scorer.scores(users)
        return total_BI


def _with_others(scores_BI: Tensor, lowest_B1: Tensor, num_items: int) -> Tensor:
    """Return the scores of a model's items, then its lowest for each other item of the blend."""
    num_others = num_items - scores_BI.shape[1]
    if not num_others:
        return scores_BI
    return torch.cat((scores_BI, lowest_B1.expand(-1, num_others)), dim=1)


def _statistics(scores_BI: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation [B, 1] of each row; a deviation of 0 is given as 1."""
    # The sum is divided by I and not by I - 1, because the catalogue is no sample.
    deviation_B1, mean_B1 = torch.std_mean(scores_BI, dim=1, correction=0, keepdim=True)
    return mean_B1, torch.where(deviation_B1 > 0.0, deviation_B1, 1.0)
