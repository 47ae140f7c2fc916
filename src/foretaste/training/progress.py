"""What a training tells while it runs; how it is shown is the caller's affair."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from foretaste.evaluation.result import Evaluation
from foretaste.training.resolve import TrainingPlan


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """What is about to be trained."""

    model: str
    dataset: str
    protocol: str
    plan: TrainingPlan | None
    """None for models without epochs."""
    num_users: int
    num_items: int
    num_interactions: int
    num_parameters: int
    num_samples: int
    """Samples in an epoch."""
    num_batches: int
    """Updates in an epoch."""
    selection_split: str | None
    """Where the best epoch is chosen: ``validation``; ``test`` if there is none; None: nowhere."""


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """One epoch, its evaluation where there was one."""

    epoch: int
    step: int
    """Updates since the start."""
    loss: float
    train_s: float
    samples_per_s: float
    settings: dict[str, float]
    """What changes as training goes on: beta, the weight of the KL term; the loss scale."""
    evaluation: Evaluation | None
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class TrainingSummary:
    """What a training came to. Times are in seconds; evaluation is outside the training clock."""

    num_epochs: int
    stopped_because: str
    min_epoch_s: float
    avg_epoch_s: float
    train_s: float
    samples_per_s: float
    evaluated_users_per_s: float
    select_by: str | None
    selection_split: str | None
    best_epoch: int | None
    best_value: float | None
    target_epoch: int | None
    memory_mib: float
    """Peak memory of the process (CPU) or of the allocator (GPU)."""
    test: Evaluation | None

    def as_event(self) -> dict[str, Any]:
        """What the metrics log keeps; the test evaluation is an event of its own."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "test"}


class Progress:
    """Told of every step of a training; does nothing. Override what should be shown."""

    def started(self, start: TrainingStart) -> None:
        """Before the first update."""

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        """After an update was queued; must not wait for the device."""

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        """While held-out users are ranked."""

    def epoch_done(self, report: EpochReport) -> None:
        """After an epoch and its evaluation."""

    def finished(self, summary: TrainingSummary) -> None:
        """After the final numbers."""
