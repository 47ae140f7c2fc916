"""Callbacks of a training, the events they get, and all that it logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste.errors import RunError, SettingError
from foretaste.evaluation.result import Evaluation
from foretaste.runs.log_copies import (
    TENSORBOARD,
    LogCopy,
    Results,
    TensorBoard,
    check_log_path,
    check_results_dir,
    check_tensorboard,
)
from foretaste.runs.paths import resume_command
from foretaste.runs.replacement import in_its_place, place_to_take
from foretaste.runs.run import Run
from foretaste.training.auto import TrainingPlan
from foretaste.training.config import LogConfig, TrainingConfig

if TYPE_CHECKING:
    from foretaste.runs.metrics_log import Follower


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """Model, data and plan of a training that begins or goes on."""

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
    """The part that chooses the epoch: ``validation``; ``test`` if there is none; None: nothing."""
    started_from: dict[str, Any]
    """By run whose weights it begins with: the users and items found there, new or gone."""
    is_resumed: bool = False
    """It goes on from a saved state."""
    resumed_at: str | None = None
    """The position it goes on from, for people; None for a training that begins the first time."""
    fitting: str | None = None
    """Work of a model without epochs, for people, where that may take long."""


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
    """Values that change as training goes on: beta, the weight of the KL term; the loss scale."""
    evaluation: Evaluation | None
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class TrainingSummary:
    """Final numbers. Times are in seconds; evaluation is outside the training clock."""

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
        """Entries of the metrics log; the test evaluation is an event of its own."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "test"}


class Callback:
    """Does nothing at every event of a training; override those of interest."""

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


class Callbacks(Callback):
    """Callback that forwards every event to several callbacks, in their order."""

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def started(self, start: TrainingStart) -> None:
        for callback in self.callbacks:
            callback.started(start)

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        for callback in self.callbacks:
            callback.stepped(epoch, step, num_steps)

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        for callback in self.callbacks:
            callback.evaluating(split, num_done, num_users)

    def epoch_done(self, report: EpochReport) -> None:
        for callback in self.callbacks:
            callback.epoch_done(report)

    def finished(self, summary: TrainingSummary) -> None:
        for callback in self.callbacks:
            callback.finished(summary)


class RunLogging(Callback):
    """Callback that writes the run's metrics log."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def started(self, start: TrainingStart) -> None:
        if start.is_resumed:  # the log has it already
            return
        self.run.log.append(
            "start",
            num_users=start.num_users,
            num_items=start.num_items,
            num_interactions=start.num_interactions,
            num_parameters=start.num_parameters,
            num_samples=start.num_samples,
            num_steps=start.num_batches,
            started_from=start.started_from,
        )

    def epoch_done(self, report: EpochReport) -> None:
        self.run.log.append(
            "epoch",
            epoch=report.epoch,
            step=report.step,
            loss=report.loss,
            train_s=report.train_s,
            samples_per_s=report.samples_per_s,
            **report.settings,
        )
        if report.evaluation is not None:
            self._log_evaluation(report.evaluation, report.epoch)

    def finished(self, summary: TrainingSummary) -> None:
        if summary.test is not None:
            self._log_evaluation(summary.test, summary.best_epoch)
        self.run.log.append("summary", **summary.as_event())

    def _log_evaluation(self, evaluation: Evaluation, epoch: int | None) -> None:
        self.run.log.append("evaluation", epoch=epoch, evaluation=evaluation.as_dict())


@contextmanager
def displayed(callback: Callback | None, asked: TrainingConfig) -> Iterator[Callback]:
    """Yield ``callback`` or, without one, a display of the training on stderr."""
    if callback is not None:
        yield callback
        return
    from rich.console import Console

    from foretaste.training.display import TrainingDisplay

    console = Console(stderr=True, highlight=False, emoji=False)
    with TrainingDisplay(console, asked) as display:
        yield display


def check_logs(
    logs: LogConfig, *, has_epochs: bool, run: Run | None = None, overwrite: bool = False
) -> None:
    """Raise before a run exists, or ``run`` goes on, what would otherwise be found out too late.

    That is SettingError for a trace of a model that is fitted in one pass and for paths that
    cannot be written to or hold what another training wrote, unless that is to be replaced;
    MissingExtraError where TensorBoard is not installed.
    """
    if logs.trace and not has_epochs:
        raise SettingError("trace is on, but a model that is fitted in one pass has no steps")
    if logs.tensorboard:
        check_tensorboard()
    if logs.log_path is not None:
        lines = [] if run is None else run.log.lines()
        check_log_path(logs.log_path, lines, overwrite=overwrite)
    if logs.results_dir is not None:
        check_results_dir(logs.results_dir, run, overwrite=overwrite)


def without_copies(logs: LogConfig) -> LogConfig:
    """The same, but nothing outside of the run: for one that is to replace another."""
    return replace(logs, log_path=None, results_dir=None)


def settled(run: Run, logs: LogConfig) -> Run:
    """A finished run in the place of the one it replaces, with what is written outside of it.

    That is written first: where it cannot be, the run stays where `resume` finds it.
    """
    try:
        for follower in _copies(run, logs):
            follower.begin(run.log.lines())
            follower.close()
    except RunError as error:
        paths = {"--log-path": logs.log_path, "--results-dir": logs.results_dir}
        options = [part for name, path in paths.items() if path for part in (name, str(path))]
        command = f"{resume_command(run.path)} {shlex.join([*options, '--overwrite'])}"
        raise RunError(
            f"{error}; the training is finished: once that is mended, go on with: {command}"
        ) from error
    return in_its_place(run)


@contextmanager
def logged(run: Run, logs: LogConfig, callback: Callback) -> Iterator[Callback]:
    """Write all logs of a training within; yields its callbacks, `RunLogging` the first.

    Followers of the run's log begin once it is cut to the state that the training goes on from.
    """
    tensorboard = [TensorBoard(run.path / TENSORBOARD)] if logs.tensorboard else []
    with run.log.followed_by(*_copies(run, logs), *tensorboard):
        if not logs.trace:
            yield Callbacks(RunLogging(run), callback)
            return
        from foretaste.training.profiler import TRACE, Profiler

        profiler = Profiler(run.path / TRACE)
        try:
            yield Callbacks(RunLogging(run), callback, profiler)
        finally:
            profiler.close()


def _copies(run: Run, logs: LogConfig) -> Iterator[Follower]:
    place = place_to_take(run.path)
    log_path, results_dir = logs.log_path, logs.results_dir
    if log_path is not None:
        log_path = _until_in_place(run.path, place, log_path)
        if log_path.resolve() != run.log.path.resolve():
            yield LogCopy(log_path)
    if results_dir is not None:
        config = run.config
        about = {
            "model": config.model,
            "dataset": config.dataset.path,
            "run": str((place or run.path).resolve()),
        }
        settings = {**about, **config.model_config, **config.asked, **config.resolved}
        yield Results(_until_in_place(run.path, place, results_dir), settings)


def _until_in_place(run_path: Path, place: Path | None, path: Path) -> Path:
    """The path to write to for ``path``, which may be within the run that is replaced."""
    if place is None or not path.resolve().is_relative_to(place.resolve()):
        return path
    return run_path / path.resolve().relative_to(place.resolve())
