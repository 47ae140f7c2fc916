"""List of the runs of a folder with their results, from config and log alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste._util.formatting import did_you_mean
from foretaste._util.settings import checked
from foretaste.errors import RunError
from foretaste.evaluation.config import default_metric
from foretaste.runs.config import RunConfig, read_run_config
from foretaste.runs.log import MetricsLog, summary_of
from foretaste.runs.paths import CONFIG, METRICS, lock_holder


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """Entries of a run's config and log; of a damaged one only its path and the reason."""

    path: Path

    state: str
    """``finished``, ``not finished``, ``in training (process 123 on host)``, or what is wrong."""

    is_damaged: bool = False

    model: str | None = None

    dataset: str | None = None
    """Name of the dataset's directory."""

    protocol: str | None = None

    candidates: str | None = None
    """The items that held-out ones were ranked against."""

    metric: str | None = None
    """The metric that chose the epoch; of a model fitted in one pass the one that would have."""

    validation: float | None = None
    """Its best value while training, on the held-out part that chooses the epoch."""

    test: float | None = None
    """Its value on the test part."""

    train_s: float | None = None
    """Seconds of all epochs, without evaluation."""

    created: str | None = None
    """The time when the run began, ISO 8601 in UTC."""


def list_runs(folder: Path | str) -> list[ListedRun]:
    """The runs in a folder, the oldest first and damaged ones last; the run itself, if it is one.

    Raises RunError where there is no such folder.
    """
    folder = checked("folder", folder, Path)
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such directory{did_you_mean(folder)}")
    paths = [folder] if _is_run(folder) else filter(_is_run, sorted(folder.iterdir()))
    listed = [_listed(path) for path in paths]
    return sorted(listed, key=lambda run: (run.is_damaged, run.created or ""))


def _is_run(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in (CONFIG, METRICS))


def _listed(path: Path) -> ListedRun:
    try:
        config = read_run_config(path / CONFIG)
        events = MetricsLog(path / METRICS).read()
        is_finished = summary_of(events) is not None
        found = _results(config, *events[-2:]) if is_finished else {}
    except RunError as error:
        return ListedRun(path=path, state=f"damaged: {error}", is_damaged=True)
    state = "finished"
    if not is_finished:
        holder = lock_holder(path)
        state = f"in training ({holder})" if holder else "not finished"
    return ListedRun(
        path=path,
        state=state,
        model=config.model,
        dataset=config.dataset.name,
        protocol=config.dataset.protocol,
        candidates=str(config.resolved.get("candidates", "full")),
        created=config.created,
        **found,
    )


def _results(config: RunConfig, *events: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a finished training, whose log ends with the test part and the summary."""
    summary, evaluation = events[-1], events[0].get("evaluation")
    metric = summary.get("select_by") or default_metric(config.dataset.protocol)
    test = None
    if isinstance(evaluation, Mapping) and evaluation.get("split") == "test":
        test = evaluation["metrics"].get(metric)
    return {
        "metric": metric,
        "validation": summary.get("best_value"),
        "test": None if test is None else float(test["value"]),
        "train_s": summary.get("train_s"),
    }
