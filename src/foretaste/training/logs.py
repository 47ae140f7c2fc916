"""Logs of a training: the run's own, and copies: lines, summaries, TensorBoard's event files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foretaste._util.files import SMALL_BYTES, atomic_file, make_folders, open_regular
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.evaluation.result import Evaluation
from foretaste.runs.files import reading, writing
from foretaste.runs.log import first_line, is_first_line, line_of
from foretaste.runs.run import Run
from foretaste.training.callbacks import (
    Callback,
    Callbacks,
    EpochReport,
    TrainingStart,
    TrainingSummary,
)
from foretaste.training.config import LogConfig
from foretaste.training.request import TrainRequest

_ARGS, _METRICS = "args.json", "metrics.json"
_KINDS = ("epoch", "evaluation", "summary")
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
        self.run.log.finish(**summary.as_event())

    def _log_evaluation(self, evaluation: Evaluation, epoch: int | None) -> None:
        self.run.log.append("evaluation", epoch=epoch, evaluation=evaluation.as_dict())


def check_logs(request: TrainRequest) -> None:
    """Check the paths of a request's logs, and optional libraries, before a training starts.

    Raises SettingError for a trace of a model that is fitted in one pass, and for paths that cannot
    be written or are there already unless ``overwrite``; MissingExtraError if TensorBoard is not
    installed.
    """
    logs, overwrite = request.logs, request.overwrite
    if logs.trace and not request.model_config.has_epochs:
        raise SettingError("trace is on, but a model that is fitted in one pass has no steps")
    if logs.tensorboard and find_spec("tensorboard") is None:
        raise MissingExtraError(
            "tensorboard is asked for and not installed; pip install tensorboard"
        )
    if logs.log_path is not None:
        check_log_path(logs.log_path, overwrite=overwrite)
    if logs.results_dir is not None:
        check_results_dir(logs.results_dir, overwrite=overwrite)


@contextmanager
def open_logs(
    run: Run, logs: LogConfig, callback: Callback, closed: Callable[[], None]
) -> Iterator[Callback]:
    """Write all logs of a training within the block; yields its callbacks, `RunLogging` first.
    ``closed`` is called if nobody reads what ``callback`` prints any more."""
    log_path, results_dir = (_moved_path(run, path) for path in (logs.log_path, logs.results_dir))
    with ExitStack() as stack:
        # The run's own log first: the others read what it has written.
        callbacks: list[Callback] = [RunLogging(run)]
        if log_path is not None and log_path.resolve() != run.log.path.resolve():
            callbacks.append(LogCopy(run, log_path))
        if results_dir is not None:
            callbacks.append(Results(run, results_dir))
        if logs.tensorboard:
            callbacks.append(stack.enter_context(closing(TensorBoard(run))))
        callbacks.append(callback)
        if logs.trace:
            from foretaste.training.profiler import TRACE, Profiler

            callbacks.append(stack.enter_context(closing(Profiler(run.path / TRACE))))
        yield Callbacks(*callbacks, closed=closed)


def _moved_path(run: Run, path: Path | None) -> Path | None:
    """Return ``path``; for a file in the run that is replaced, return its place in the new run."""
    if path is None or run.place == run.path:
        return path
    place, found = run.place.resolve(), path.resolve()
    return run.path / found.relative_to(place) if found.is_relative_to(place) else path


def check_log_path(path: Path, *, overwrite: bool = False) -> None:
    """Raise SettingError if no log can be written to ``path``, or something would be lost.
    ``overwrite`` allows replacing a log, but no other file. Empty files and devices are accepted.
    """
    if path.is_dir() or path.is_fifo():
        kind = "a directory" if path.is_dir() else "a pipe"
        raise SettingError(f"log_path is {path}, which is {kind}; name a file")
    _check_can_be_made(path.absolute().parents, f"log_path is {path}")
    if not path.is_file() or not path.stat().st_size:
        return
    with open_regular(path) as file:
        first = file.readline(SMALL_BYTES)
        may_replace = overwrite and is_first_line(first.decode(errors="replace"))
    if not may_replace:
        why = "it is no log, and nothing else is replaced" if overwrite else _WHY
        raise SettingError(
            f"log_path is {path}, which is there already; {why}: name another file or remove it"
        )


def check_results_dir(directory: Path, *, overwrite: bool = False) -> None:
    """Raise SettingError if ``directory`` cannot be made, or has results and no ``overwrite``."""
    folders = (directory, *directory.absolute().parents)
    _check_can_be_made(folders, f"results_dir is {directory}")
    found = existing_results(directory)
    if found and not overwrite:
        raise SettingError(
            f"results_dir is {directory}, which has {' and '.join(found)} already; "
            f"{_WHY}: name another directory or remove them"
        )


def existing_results(directory: Path) -> list[str]:
    """Return the names of the results that are there."""
    return [name for name in (_ARGS, _METRICS) if (directory / name).is_file()]


def _check_can_be_made(folders: Iterable[Path], setting: str) -> None:
    """Raise SettingError, which begins with the ``setting``, if a file stands in the way."""
    found = next(part for part in folders if part.exists())
    if not found.is_dir():
        raise SettingError(f"{setting}, but {found} is not a directory")


def write_log(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Write a log of one evaluation to ``path``; RunError if the write fails."""
    lines = first_line() + line_of("evaluation", evaluation=evaluation)
    with writing(path):
        make_folders(path.parent)
        path.write_bytes(lines.encode())


class LogCopy(Callback):
    """Callback that copies the run's log to another file."""

    def __init__(self, run: Run, path: Path) -> None:
        self.run = run
        self.path = path
        self._num_bytes = 0

    def started(self, start: TrainingStart) -> None:
        with writing(self.path):
            make_folders(self.path.parent)
        self._copy()

    def epoch_done(self, report: EpochReport) -> None:
        self._copy()

    def finished(self, summary: TrainingSummary) -> None:
        self._copy()

    def _copy(self) -> None:
        """Append the new lines of the log; the first call copies the whole log to a new file."""
        log = self.run.log.path
        with reading(log), open_regular(log) as file:
            file.seek(self._num_bytes)
            content = file.read()
        with writing(self.path), self.path.open("ab" if self._num_bytes else "wb") as copy:
            copy.write(content)
        self._num_bytes += len(content)


class Results(Callback):
    """Callback that keeps ``args.json``, the settings, and ``metrics.json``, the events by kind."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.run = run
        self.directory = directory

    def started(self, start: TrainingStart) -> None:
        config = self.run.config
        about = {
            "model": config.model,
            "dataset": config.dataset.path,
            "run": str(self.run.place.resolve()),
        }
        with writing(self.directory):
            make_folders(self.directory)
        self._write(_ARGS, {**about, **config.model_config, **config.settings})
        self._write_metrics()

    def epoch_done(self, report: EpochReport) -> None:
        if report.evaluation is not None:
            self._write_metrics()

    def finished(self, summary: TrainingSummary) -> None:
        self._write_metrics()

    def _write_metrics(self) -> None:
        schema, *events = self.run.log.read()
        by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
        for event in events:
            if event["event"] in by_kind:
                rest = {name: value for name, value in event.items() if name != "event"}
                by_kind[event["event"]].append(rest)
        self._write(_METRICS, {"units": schema["units"], **by_kind})

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        with writing(self.directory), atomic_file(self.directory / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


class TensorBoard(Callback):
    """Callback that writes the numbers of a run's log as scalars of event files, by epoch.

    The files are made again if a training begins or resumes.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._writer: Any = None
        self._num_shown = 0
        """Number of events of the log that are already written."""

    def started(self, start: TrainingStart) -> None:
        from torch.utils.tensorboard import SummaryWriter

        directory = self.run.path / TENSORBOARD
        if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
            raise RunError(
                f"{directory} is no directory of the run's own: nothing is written there; remove it"
            )
        shutil.rmtree(directory, ignore_errors=True)
        self._writer = SummaryWriter(directory)
        self._show()

    def epoch_done(self, report: EpochReport) -> None:
        self._show()

    def finished(self, summary: TrainingSummary) -> None:
        self._show()

    def _show(self) -> None:
        events = self.run.log.read()
        for event in events[self._num_shown :]:
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
        self._num_shown = len(events)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
