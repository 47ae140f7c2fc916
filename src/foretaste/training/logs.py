"""What a training writes beside its run's own log, as it was asked to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste.errors import RunError, SettingError
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
from foretaste.training.config import LogConfig
from foretaste.training.progress import Progress, Several

if TYPE_CHECKING:
    from foretaste.runs.metrics_log import Follower


def check_logs(
    logs: LogConfig, *, in_steps: bool, run: Run | None = None, overwrite: bool = False
) -> None:
    """Raise before a run exists, or ``run`` goes on, what would otherwise be found out too late.

    That is SettingError for a trace of a model that is fitted in one pass and for paths that
    cannot be written to or hold what another training wrote, unless that is to be replaced;
    MissingExtraError where TensorBoard is not installed.
    """
    if logs.trace and not in_steps:
        raise SettingError("trace is on, but a model that is fitted in one pass has no steps")
    if logs.tensorboard:
        check_tensorboard()
    if logs.log_path is not None:
        lines = [] if run is None else run.log.lines()
        check_log_path(logs.log_path, lines, overwrite=overwrite)
    if logs.results_dir is not None:
        check_results_dir(logs.results_dir, run, overwrite=overwrite)


def without_copies(logs: LogConfig) -> LogConfig:
    """What is written while a training runs that is to replace something: nothing outside of it."""
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
        raise RunError(
            f"{error}; the training is finished: once that is mended, go on with: "
            f"{_command_to_write(run, logs)}"
        ) from error
    return in_its_place(run)


def _command_to_write(run: Run, logs: LogConfig) -> str:
    paths = {"--log-path": logs.log_path, "--results-dir": logs.results_dir}
    options = [part for name, path in paths.items() if path for part in (name, str(path))]
    return f"{resume_command(run.path)} {shlex.join([*options, '--overwrite'])}"


@contextmanager
def logged(run: Run, logs: LogConfig, progress: Progress) -> Iterator[Progress]:
    """Within, what was asked for is written, once the log is cut to what it goes on from; yields
    who is to be told of the training."""
    with run.log.followed_by(*_followers(run, logs)):
        if not logs.trace:
            yield progress
            return
        from foretaste.training.tracing import TRACE, Tracer

        tracer = Tracer(run.path / TRACE)
        try:
            yield Several(progress, tracer)
        finally:
            tracer.close()


def _followers(run: Run, logs: LogConfig) -> Iterator[Follower]:
    yield from _copies(run, logs)
    if logs.tensorboard:
        yield TensorBoard(run.path / TENSORBOARD)


def _copies(run: Run, logs: LogConfig) -> Iterator[Follower]:
    log_path, results_dir = (_until_in_place(run, p) for p in (logs.log_path, logs.results_dir))
    if log_path is not None and log_path.resolve() != run.log.path.resolve():
        yield LogCopy(log_path)
    if results_dir is not None:
        yield Results(results_dir, _settings(run))


def _until_in_place(run: Run, path: Path | None) -> Path | None:
    """Where to write what is to be at ``path``, which may be within the run that is replaced."""
    place = place_to_take(run.path)
    if path is None or place is None or not path.resolve().is_relative_to(place.resolve()):
        return path
    return run.path / path.resolve().relative_to(place.resolve())


def _settings(run: Run) -> dict[str, Any]:
    """Every setting of a run by name, ``auto`` as it was resolved."""
    config = run.config
    place = place_to_take(run.path) or run.path
    about = {"model": config.model, "dataset": config.dataset.path, "run": str(place.resolve())}
    return {**about, **config.model_config, **config.asked, **config.resolved}
