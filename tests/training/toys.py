"""Toy families, one for each kind of fitting, registered by tests alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from foretaste.models.base import (
    ClosedFormModel,
    ComposedModel,
    FitProgress,
    NeuralModel,
    RecommenderModel,
    SweepModel,
    UserState,
)
from foretaste.models.batches import Batch, Batches, WholeData
from foretaste.models.config import ModelConfig, TrainingSize
from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.histories import HistoryTensors


@dataclass(frozen=True, kw_only=True)
class ToyConfig(ModelConfig):
    """A toy with a vector for every item."""

    has_large_products = False
    parallel = "data"

    width: int = 3
    """Width of the item vectors."""


@dataclass(frozen=True, kw_only=True)
class ToySweepsConfig(ToyConfig):
    """A toy fitted by sweeps, which cannot be shared out."""

    has_steps = False
    parallel = None


@dataclass(frozen=True, kw_only=True)
class ToyFitConfig(ModelConfig):
    """A toy fitted in one pass."""

    has_epochs = False
    has_large_products = False


@dataclass(frozen=True, kw_only=True)
class ToyBlendConfig(ToyFitConfig):
    """A toy made of other runs."""

    runs: tuple[str, ...] = ()
    """Directories of the runs."""


class ToyScores(RecommenderModel):
    """Scores the catalogue by a matrix [I, I] from the items of a history."""

    def weights(self) -> Tensor:
        raise NotImplementedError

    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        return (histories.to_dense(),)

    @torch.no_grad()
    def _score_catalogue(self, state: UserState) -> Tensor:
        (history_BI,) = state.parts
        assert isinstance(history_BI, Tensor)
        return history_BI @ self.weights()

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self._score_catalogue(state).gather(1, item_index_BK.long())


class ToyVectors(ToyScores):
    """Scores by two vectors for each item."""

    config_class: ClassVar[type[ModelConfig]] = ToyConfig
    item_rows = ("left", "right")

    def __init__(
        self, config: ToyConfig, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        self.left = nn.Parameter(torch.empty(num_items, config.width))
        self.right = nn.Parameter(torch.empty(num_items, config.width))

    def reset_parameters(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            parameter.data.copy_(0.1 * torch.randn(parameter.shape, generator=generator))

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: Any) -> dict[str, Any]:
        settings = {"epochs": 3, "batch_size": size.num_users, "eval_every": 1, "patience": 0}
        return settings | {"learning_rate": 0.05, "beta1": 0.9, "beta2": 0.999}

    def weights(self) -> Tensor:
        return self.left @ self.right.T

    def own_users(self, histories: HistoryTensors) -> HistoryTensors:
        """Histories of the users on this rank."""
        users = self.parts.part_of(len(histories))
        return histories[users.start : users.stop]

    def error(self, histories: HistoryTensors) -> Tensor:
        """Mean squared error of the users' rows; the errors of parts add up to the whole's."""
        history_BI = self.own_users(histories).to_dense()
        squares = (history_BI - history_BI @ self.weights()).square()
        return squares.sum() / (len(histories) * self.num_items)


class ToySteps(ToyVectors, NeuralModel):
    """Fitted by gradient steps with one optimizer."""

    name = "toy-steps"

    def make_batches(
        self, histories: HistoryTensors, *, parts: Shards = SINGLE, **settings: Any
    ) -> Batches:
        self.parts = parts
        return WholeData(histories)

    def forward(self, batch: WholeData) -> Tensor:
        return self.error(batch.histories)


@dataclass(frozen=True, eq=False)
class Phase(WholeData):
    """All data for one optimizer among two."""

    side: str = "left"


class Alternating(WholeData):
    """Twice all data in an epoch: once for each optimizer."""

    num_batches: ClassVar[int] = 2

    @property
    def num_samples(self) -> int:
        return 2 * len(self.histories)

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[WholeData]:
        for side in ("left", "right")[first_batch:]:
            yield Phase(self.histories, side)


class ToyPhases(ToySteps):
    """Fitted by two optimizers alternately."""

    name = "toy-phases"

    def make_batches(
        self, histories: HistoryTensors, *, parts: Shards = SINGLE, **settings: Any
    ) -> Batches:
        self.parts = parts
        return Alternating(histories)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"left": [self.left], "right": [self.right]}

    def updated_by(self, batch: Batch) -> str:
        assert isinstance(batch, Phase)
        return batch.side


class ToySweeps(ToyVectors, SweepModel):
    """Fitted by alternating least squares."""

    name = "toy-sweeps"
    config_class = ToySweepsConfig

    def make_batches(self, histories: HistoryTensors, **settings: Any) -> Batches:
        return WholeData(histories)

    @torch.no_grad()
    def sweep(self, batch: WholeData) -> Tensor:
        # float64, so that equal sweeps round to equal weights.
        history_BI = batch.histories.to_dense().double()
        gram_II = history_BI.T @ history_BI
        target_II = torch.linalg.solve(gram_II + torch.eye(len(gram_II)), gram_II)
        ridge = torch.eye(self.left.shape[1])
        for one, other, side_II in (
            (self.left, self.right, target_II),
            (self.right, self.left, target_II.T),
        ):
            fixed = other.double()
            one.copy_(torch.linalg.solve(fixed.T @ fixed + ridge, fixed.T @ side_II.T).T)
        penalty = self.left.square().sum() + self.right.square().sum()
        error: Tensor = (target_II - self.weights()).square().sum()
        return error + penalty


class ToyFit(ToyScores, ClosedFormModel):
    """Fitted in one pass: items that go together."""

    name = "toy-fit"
    config_class: ClassVar[type[ModelConfig]] = ToyFitConfig

    def __init__(self, config: ModelConfig, num_users: int, num_items: int) -> None:
        super().__init__(config, num_users, num_items)
        self.together_II: Tensor
        self.register_buffer("together_II", torch.zeros(num_items, num_items))

    def weights(self) -> Tensor:
        return self.together_II

    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        history_BI = histories.to_dense()
        self.together_II.copy_(history_BI.T @ history_BI).fill_diagonal_(0.0)


class ToyBlend(ToyFit, ComposedModel):
    """Made of other runs: the mean of their scores for each item alone."""

    name = "toy-blend"
    config_class = ToyBlendConfig

    def run_paths(self) -> Sequence[str]:
        paths: Sequence[str] = self.config.runs
        return paths

    def compose(self, models: Sequence[RecommenderModel]) -> None:
        self.models = models

    @torch.no_grad()
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        items = torch.arange(self.num_items, dtype=torch.int32)
        alone = HistoryTensors(torch.arange(self.num_items + 1), items, self.num_items)
        scores = [model.score_catalogue(model.fold_in(alone)) for model in self.models]
        self.together_II.copy_(torch.stack(scores).mean(0))
