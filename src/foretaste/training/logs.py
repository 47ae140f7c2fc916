"""Logs of a training: the run's own, and the copies beside it: the lines in another file, two
summaries, TensorBoard's event files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from foretaste._util.atomic import atomic_file
from foretaste._util.files import followed
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.evaluation.result import Evaluation
from foretaste.runs.files import writing
from foretaste.runs.log import Follower, first_line, is_first_line, line_of
from foretaste.runs.run import Run
from foretaste.training.callbacks import (
    Callback,
    Callbacks,
    EpochReport,
    TrainingStart,
    TrainingSummary,
)
from foretaste.training.config import LogConfig

_ARGS, _METRICS = "args.json", "metrics.json"
_KINDS = ("epoch", "evaluation", "summary")
_CHANGES_RESULTS = ("evaluation", "summary")
_WHY = "nothing is written over without --overwrite (overwrite=True in Python)"

TENSORBOARD = "tensorboard"
"""The directory of event files within the run directory."""


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
    """Check paths and optional libraries before a training starts.

    Raises SettingError for a trace of a model that is fitted in one pass, and for paths that cannot
    be written or are there already unless ``overwrite``; MissingExtraError where TensorBoard is not
    installed.
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
    log_path, results_dir = logs.log_path, logs.results_dir
    if log_path is not None and log_path.resolve() != run.log.path.resolve():
        yield LogCopy(log_path)
    if results_dir is not None:
        config = run.config
        about = {
            "model": config.model,
            "dataset": config.dataset.path,
            "run": str(run.path.resolve()),
        }
        settings = {**about, **config.model_config, **config.settings}
        yield Results(results_dir, settings)
    if tensorboard:
        yield TensorBoard(run.path / TENSORBOARD)


def check_log_path(path: Path, *, overwrite: bool = False) -> None:
    """Raise SettingError where no log can be written to ``path``, or something would be lost.

    A log may be replaced with ``overwrite``; what is no log never. What is no ordinary file, such
    as a pipe, may be written to, and so may an empty one.
    """
    if path.is_dir():
        raise SettingError(f"log_path is {path}, which is a directory; name a file")
    _check_can_be_made(path, path.absolute().parents, f"log_path is {path}")
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        may_replace = overwrite and is_first_line(file.readline())
    if not may_replace:
        why = "it is no log, and nothing else is replaced" if overwrite else _WHY
        raise SettingError(
            f"log_path is {path}, which is there already; {why}: name another file or remove it"
        )


def check_results_dir(directory: Path, *, overwrite: bool = False) -> None:
    """Raise SettingError where ``directory`` cannot be made or has results already.

    Results may be replaced with ``overwrite``.
    """
    folders = (directory, *directory.absolute().parents)
    _check_can_be_made(directory, folders, f"results_dir is {directory}")
    found = results_in(directory)
    if found and not overwrite:
        raise SettingError(
            f"results_dir is {directory}, which has {' and '.join(found)} already; "
            f"{_WHY}: name another directory or remove them"
        )


def results_in(directory: Path) -> list[str]:
    """The names of the results that are there."""
    return [name for name in (_ARGS, _METRICS) if (directory / name).is_file()]


def _check_can_be_made(path: Path, folders: Iterable[Path], setting: str) -> None:
    """SettingError, which begins with the ``setting``, where a file or link stands in the way."""
    found = next(part for part in folders if part.exists())
    if not found.is_dir():
        raise SettingError(f"{setting}, but {found} is not a directory")
    try:
        followed(path)
    except OSError as error:
        raise SettingError(
            f"{setting}, which cannot be written: {error.strerror}; name another"
        ) from error


def write_log(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Make ``path`` a log of one evaluation, as it is logged; RunError where that fails."""
    with closing(LogCopy(path)) as log:
        log.begin([first_line(), line_of("evaluation", evaluation=evaluation)])


class LogCopy:
    """Callback that writes the lines of a log to another file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def begin(self, lines: list[str]) -> None:
        with writing(self.path):
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("w", encoding="utf-8", newline="\n")
            elif self._file.seekable():
                self._file.seek(0)
                self._file.truncate()
            # A pipe has had the earlier lines. Its reader goes away once it is closed.
            self._file.write("".join(lines))
            self._file.flush()

    def add(self, line: str) -> None:
        assert self._file is not None
        with writing(self.path):
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with writing(self.path):
                self._file.close()


class Results:
    """Callback that keeps ``args.json``, the settings, and ``metrics.json``, the events by kind."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self.settings = settings
        self._events: list[dict[str, Any]] = []

    def begin(self, lines: list[str]) -> None:
        self._events = [json.loads(line) for line in lines]
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(_ARGS, self.settings)
            self._write_metrics()

    def add(self, line: str) -> None:
        event = json.loads(line)
        self._events.append(event)
        if event["event"] in _CHANGES_RESULTS:
            with writing(self.directory):
                self._write_metrics()

    def close(self) -> None:
        """Everything is written already."""

    def _write_metrics(self) -> None:
        by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
        units: Mapping[str, str] = {}
        for event in self._events:
            rest = {name: value for name, value in event.items() if name != "event"}
            if event["event"] == "schema":
                units = event["units"]
            elif event["event"] in by_kind:
                by_kind[event["event"]].append(rest)
        self._write(_METRICS, {"units": units, **by_kind})

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        with atomic_file(self.directory / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


def check_tensorboard() -> None:
    """MissingExtraError where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise MissingExtraError(
            "tensorboard is asked for and not installed; pip install tensorboard"
        )


class TensorBoard:
    """Callback that writes the numbers of a log as scalars of event files, by epoch.

    The files are made anew where the log begins anew.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer: Any = None

    def begin(self, lines: list[str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self.directory.is_symlink() or (self.directory.exists() and not self.directory.is_dir()):
            raise RunError(
                f"{self.directory} is no directory of the run's own: nothing is written there; "
                "remove it"
            )
        shutil.rmtree(self.directory, ignore_errors=True)
        self._writer = SummaryWriter(self.directory)
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        event = json.loads(line)
        scalars: dict[str, float] = {}
        if event["event"] == "epoch":
            scalars = {
                name: value
                for name, value in event.items()
                if isinstance(value, int | float) and name not in ("epoch", "step")
            }
        elif event["event"] == "evaluation":
            found = event["evaluation"]
            scalars = {
                f"{found['split']}/{name}".replace("@", "_at_"): metric["value"]
                for name, metric in found["metrics"].items()
            }
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, event["epoch"] or 0)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
