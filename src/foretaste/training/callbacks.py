"""Callbacks of a training, and the events they get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from foretaste.data.dataset import Dataset
from foretaste.evaluation.result import Evaluation
from foretaste.training.auto import TrainingPlan


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """Model, data and plan of a training that begins or resumes."""

    model: str
    dataset: str
    protocol: str
    plan: TrainingPlan | None
    """None for models without epochs."""
    model_settings: dict[str, Any]
    """Values of the model's settings that followed others or the data."""
    num_users: int
    num_items: int
    num_interactions: int
    num_parameters: int
    num_samples: int
    """Samples in an epoch."""
    num_steps_per_epoch: int
    """Updates in an epoch."""
    auto_batch_size: int | None = None
    """The batch size that ``auto`` takes; None for models without batches."""
    selection_split: str | None
    """The part that chooses the epoch: ``validation``, or ``test`` if there is none; None if no
    part does."""
    started_from: dict[str, Any]
    """The users and items found, new or gone, by run of the first weights."""
    is_resumed: bool = False
    """The training resumes from a saved state."""
    resumed_at: str | None = None
    """The position from which the training resumes, for people; None for a new training."""
    order: str | None = None
    """A doubt about the order of the interactions, for people, if the model uses it; otherwise
    None."""
    weights: str | None = None
    """The use of the data's weights, for people; None if they have none."""
    new_items: str | None = None
    """The use of the data's new items, for people; None if they have none."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the validation part chose, as in `RunConfig`."""
    memory: str | None = None
    """Memory that the training takes at most, for people; None if it is unknown."""
    fitting: str | None = None
    """Work of a model without epochs, for people, if it may take long."""


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """One epoch, with its evaluation if there was one."""

    epoch: int
    step: int
    """Updates since the start."""
    loss: float
    train_s: float
    samples_per_s: float
    settings: dict[str, float]
    """Values that change during training: beta, the weight of the KL term; the loss scale."""
    evaluation: Evaluation | None
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class BesidePopularity:
    """A model compared with popularity, on the people who choose the epoch.

    Popularity counts the people who have an item; weights, which the model ``popularity`` adds up,
    do not change it.
    """

    metric: str
    """The metric that chooses."""
    value: float
    """That of popularity."""
    gain: float
    """The model's value less popularity's, with a 95 % interval from ``low`` to ``high``."""
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class TrainingSummary:
    """Final numbers. Times are in seconds; evaluation is outside the training clock."""

    num_epochs: int
    stopped_because: str
    num_warm_up_epochs: int
    """Epochs left out of the least and mean times and of ``samples_per_s``: the warm-up epochs, and
    on a GPU the epochs that compiled."""
    min_epoch_s: float
    avg_epoch_s: float
    min_evaluation_s: float | None
    """Seconds of an epoch's evaluation; None if no epoch was evaluated."""
    avg_evaluation_s: float | None
    train_s: float
    """Seconds of all epochs."""
    compile_s: float
    """Before the first epoch, outside the training clock."""
    search_s: float
    """Seconds of the fits that chose settings, before the training; 0 without fits, and for a
    resumed training."""
    samples_per_s: float
    evaluated_users_per_s: float
    evaluated_samples_per_s: float
    """(User, candidate) pairs."""
    select_by: str | None = None
    selection_split: str | None = None
    best_epoch: int | None = None
    best_value: float | None = None
    target_epoch: int | None = None
    target_s: float | None = None
    """Seconds from the start to the end of the evaluation that reached the target, compiling
    included."""
    memory_mib: float | None
    """Peak memory of the process (CPU) or of the allocator (GPU); None on a CPU under Windows."""
    test: Evaluation | None
    popularity: BesidePopularity | None = None
    """The comparison with popularity. None for popularity itself, if nothing is held out, or if the
    metric has no value for each person."""
    fold_in: dict[str, Any] = field(default_factory=dict)
    """Settings of the model's fold-in that the validation part chose, by name."""
    validation: Evaluation | None = None
    """The evaluation of the validation part with these settings, if they differ from the
    training's; ``best_value`` comes from it."""

    def as_event(self) -> dict[str, Any]:
        """Return entries of the metrics log; evaluations are events of their own."""
        names = [item.name for item in fields(self) if item.name not in ("validation", "test")]
        popularity = {} if self.popularity is None else asdict(self.popularity)
        return {name: getattr(self, name) for name in names} | {"popularity": popularity}


class Callback:
    """Base class of callbacks: does nothing at any event. Override the events of interest."""

    def preparing(self, step: str) -> None:
        """Called when a step of the preparation of raw interactions begins, before the training."""

    def prepared(self, source: str, dataset: Dataset) -> None:
        """Called once raw interactions are prepared; ``source`` names them, without passwords."""

    def resuming(self, run_path: Path) -> None:
        """Called before an unfinished run of the same request is resumed."""

    def started(self, start: TrainingStart) -> None:
        """Called before the first update."""

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        """Called when an update was queued; must not wait for the device."""

    def fitting(self, step: str, num_done: int, num_all: int) -> None:
        """Called while a model is fitted in one pass, with the progress of the current step."""

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        """Called while held-out users are ranked."""

    def epoch_done(self, report: EpochReport) -> None:
        """Called after an epoch and its evaluation."""

    def finished(self, summary: TrainingSummary) -> None:
        """After the final numbers."""


class Callbacks(Callback):
    """Callback that forwards every event to several callbacks, in their order.

    If ``closed`` is given, it is called when a callback prints to a pipe without a reader; that
    callback then gets no further events.
    """

    def __init__(self, *callbacks: Callback, closed: Callable[[], None] | None = None) -> None:
        self.callbacks = [*callbacks]
        self._closed = closed
        for event in _EVENTS:
            setattr(self, event, partial(self._forward, event))

    def _forward(self, event: str, *details: Any) -> None:
        for callback in [*self.callbacks]:
            try:
                getattr(callback, event)(*details)
            except BrokenPipeError:
                if self._closed is None:
                    raise
                self.callbacks.remove(callback)
                self._closed()


_EVENTS = [name for name in vars(Callback) if not name.startswith("_")]
