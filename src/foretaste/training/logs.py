"""What a training writes beside its run's own log, as it was asked to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretaste.errors import SettingError
from foretaste.runs.copies import LogCopy, Results, check_log_path, check_results_dir
from foretaste.runs.replacement import in_its_place
from foretaste.runs.run import Run
from foretaste.runs.tensorboard import DIRECTORY, TensorBoard, check_tensorboard
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
    """What is written while a training runs that is to replace another: nothing outside of it."""
    return replace(logs, log_path=None, results_dir=None)


def settled(run: Run, logs: LogConfig) -> Run:
    """A finished run in the place of the one it replaces, with what is written outside of it."""
    run = in_its_place(run)
    for follower in _copies(run, logs):
        follower.begin(run.log.lines())
        follower.close()
    return run


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
        yield TensorBoard(run.path / DIRECTORY)


def _copies(run: Run, logs: LogConfig) -> Iterator[Follower]:
    if logs.log_path is not None and logs.log_path.resolve() != run.log.path.resolve():
        yield LogCopy(logs.log_path)
    if logs.results_dir is not None:
        yield Results(logs.results_dir, _settings(run))


def _settings(run: Run) -> dict[str, Any]:
    """Every setting of a run by name, ``auto`` as it was resolved."""
    config = run.config
    about = {"model": config.model, "dataset": config.dataset.path, "run": str(run.path.resolve())}
    return {**about, **config.model_config, **config.asked, **config.resolved}
