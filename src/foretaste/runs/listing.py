"""The runs of a folder, told from config and log alone: what they are, and what they came to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste._util.formatting import did_you_mean
from foretaste._util.settings import checked
from foretaste.errors import RunError
from foretaste.runs.config import RunConfig, read_run_config
from foretaste.runs.lock import lock_holder
from foretaste.runs.metrics_log import MetricsLog
from foretaste.runs.paths import CONFIG, METRICS


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """What config and log say of a run; of a damaged one nothing but where it is and why."""

    path: Path

    state: str
    """``finished``, ``not finished``, ``in training (process 123 on host)``, or what is wrong."""

    is_damaged: bool = False

    model: str | None = None

    dataset: str | None = None
    """Name of the dataset's directory."""

    protocol: str | None = None

    candidates: str | None = None
    """What held-out items were ranked against."""

    metric: str | None = None
    """The metric that chose the epoch; of a model fitted in one pass the one that would have."""

    validation: float | None = None
    """Its best value while training, on the held-out part that chooses the epoch."""

    test: float | None = None
    """Its value on the test part."""

    train_s: float | None = None
    """Seconds of all epochs, evaluation aside."""

    created: str | None = None
    """When the run began, ISO 8601 in UTC."""


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
        events = MetricsLog(path / METRICS).last_events(2)
        found = _came_to(config, events)
    except RunError as error:
        return ListedRun(path=path, state=f"damaged: {error}", is_damaged=True)
    state = "finished"
    if not events or events[-1]["event"] != "summary":
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


def _came_to(config: RunConfig, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of a finished training, whose log ends with the test part and the summary."""
    summary = events[-1] if events and events[-1]["event"] == "summary" else {}
    if not summary:
        return {}
    chosen = "ndcg@100" if config.dataset.protocol == "held-out-users" else "ndcg@10"
    metric = summary.get("select_by") or chosen
    evaluation = events[0].get("evaluation")
    return {
        "metric": metric,
        "validation": summary.get("best_value"),
        "test": _value(evaluation, metric),
        "train_s": summary.get("train_s"),
    }


def _value(evaluation: Any, metric: str) -> float | None:
    """A metric of the test part, as a log has its evaluation."""
    if not isinstance(evaluation, Mapping) or evaluation.get("split") != "test":
        return None
    found = evaluation["metrics"].get(metric)
    return None if found is None else float(found["value"])
