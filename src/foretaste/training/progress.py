"""What a training tells while it runs; how it is shown is the caller's affair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from foretaste.evaluation.result import Evaluation
from foretaste.training.config import TrainingConfig
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
    started_from: dict[str, Any]
    """By run whose weights it begins with: the users and items found there, new or gone."""
    resumed_at: str | None
    """Where it goes on, for people; None for a training that begins the first time."""
    fitting: str | None = None
    """What a model without epochs is about to compute, for people, where that may take long."""


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
    num_warm_up_epochs: int
    """Epochs left out of the least and mean times and of ``samples_per_s``: the first ones as asked
    for, and on a GPU those that compiled."""
    min_epoch_s: float
    avg_epoch_s: float
    min_evaluation_s: float | None
    """Of an epoch's evaluation; None where no epoch was evaluated."""
    avg_evaluation_s: float | None
    train_s: float
    """Of all epochs."""
    compile_s: float
    """Before the first epoch, outside the training clock."""
    samples_per_s: float
    evaluated_users_per_s: float
    evaluated_samples_per_s: float
    """(User, candidate) pairs."""
    select_by: str | None
    selection_split: str | None
    best_epoch: int | None
    best_value: float | None
    target_epoch: int | None
    target_s: float | None
    """From the start to the end of the evaluation that reached the target, compiling included."""
    memory_mib: float | None
    """Peak memory of the process (CPU) or of the allocator (GPU); None on a CPU under Windows."""
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


class Several(Progress):
    """Tells all of several."""

    def __init__(self, *told: Progress) -> None:
        self.told = told

    def started(self, start: TrainingStart) -> None:
        for each in self.told:
            each.started(start)

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        for each in self.told:
            each.stepped(epoch, step, num_steps)

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        for each in self.told:
            each.evaluating(split, num_done, num_users)

    def epoch_done(self, report: EpochReport) -> None:
        for each in self.told:
            each.epoch_done(report)

    def finished(self, summary: TrainingSummary) -> None:
        for each in self.told:
            each.finished(summary)


@contextmanager
def watched(progress: Progress | None, asked: TrainingConfig) -> Iterator[Progress]:
    """Yield who is to be told of a training: ``progress`` or, without one, a display on stderr."""
    if progress is not None:
        yield progress
        return
    from rich.console import Console

    from foretaste.training.display import TrainingDisplay

    console = Console(stderr=True, highlight=False, emoji=False)
    with TrainingDisplay(console, asked) as display:
        yield display
