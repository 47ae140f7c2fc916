"""Logs of a training: the run's own, and the copies beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from foretaste.errors import RunError, SettingError
from foretaste.evaluation.result import Evaluation
from foretaste.runs.log import (
    TENSORBOARD,
    Follower,
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
from foretaste.training.callbacks import (
    Callback,
    Callbacks,
    EpochReport,
    TrainingStart,
    TrainingSummary,
)
from foretaste.training.config import LogConfig


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
            num_steps=start.num_steps_per_epoch,
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
        for evaluation in (summary.validation, summary.test):
            if evaluation is not None:
                self._log_evaluation(evaluation, summary.best_epoch)
        self.run.log.append("summary", **summary.as_event())

    def _log_evaluation(self, evaluation: Evaluation, epoch: int | None) -> None:
        self.run.log.append("evaluation", epoch=epoch, evaluation=evaluation.as_dict())


def check_logs(logs: LogConfig, *, has_epochs: bool, overwrite: bool = False) -> None:
    """Raise before a training begins or goes on what would otherwise be found out too late.

    That is SettingError for a trace of a model that is fitted in one pass and for paths that
    cannot be written to or are there already, unless that is to be replaced; MissingExtraError
    where TensorBoard is not installed.
    """
    if logs.trace and not has_epochs:
        raise SettingError("trace is on, but a model that is fitted in one pass has no steps")
    if not _are_copied(logs):
        return
    if logs.tensorboard:
        check_tensorboard()
    if logs.log_path is not None:
        check_log_path(logs.log_path, overwrite=overwrite)
    if logs.results_dir is not None:
        check_results_dir(logs.results_dir, overwrite=overwrite)


def without_copies(logs: LogConfig) -> LogConfig:
    """The same, but nothing outside of the run: for one that is to replace another."""
    return replace(logs, log_path=None, results_dir=None)


def replace_run(run: Run, logs: LogConfig) -> Run:
    """Move a finished run to the place of the one it replaces, and write the logs outside of it."""
    # The logs come first: where they cannot be written, the run stays where `resume` finds it.
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
    with run.log.followed_by(*_copies(run, logs, tensorboard=logs.tensorboard)):
        if not logs.trace:
            yield Callbacks(RunLogging(run), callback)
            return
        from foretaste.training.profiler import TRACE, Profiler

        profiler = Profiler(run.path / TRACE)
        try:
            yield Callbacks(RunLogging(run), callback, profiler)
        finally:
            profiler.close()


def _are_copied(logs: LogConfig) -> bool:
    return logs.tensorboard or logs.log_path is not None or logs.results_dir is not None


def _copies(run: Run, logs: LogConfig, *, tensorboard: bool = False) -> Iterator[Follower]:
    if not _are_copied(logs):
        return
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
        settings = {**about, **config.model_config, **config.settings}
        yield Results(_until_in_place(run.path, place, results_dir), settings)
    if tensorboard:
        yield TensorBoard(run.path / TENSORBOARD)


def _until_in_place(run_path: Path, place: Path | None, path: Path) -> Path:
    """The path to write to for ``path``, which may be within the run that is replaced."""
    if place is None or not path.resolve().is_relative_to(place.resolve()):
        return path
    return run_path / path.resolve().relative_to(place.resolve())
