"""The run directory: config, weights, ids, histories and the metrics log of one training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.runs.config import DatasetReference, RunConfig
    from foretaste.runs.listing import ListedRun, list_runs
    from foretaste.runs.log import MetricsLog, RunHistory
    from foretaste.runs.paths import default_run_name, unused_run_path
    from foretaste.runs.run import Run, dataset_of, load_model
    from foretaste.runs.verification import verify, verify_run

_MODULE_OF = {
    "DatasetReference": "config",
    "ListedRun": "listing",
    "MetricsLog": "log",
    "Run": "run",
    "RunConfig": "config",
    "RunHistory": "log",
    "dataset_of": "run",
    "default_run_name": "paths",
    "list_runs": "listing",
    "load_model": "run",
    "unused_run_path": "paths",
    "verify": "verification",
    "verify_run": "verification",
}

__all__ = [
    "DatasetReference",
    "ListedRun",
    "MetricsLog",
    "Run",
    "RunConfig",
    "RunHistory",
    "dataset_of",
    "default_run_name",
    "list_runs",
    "load_model",
    "unused_run_path",
    "verify",
    "verify_run",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)
