"""The run directory: config, weights, ids, histories and the metrics log of one training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretaste.runs.config import DatasetReference, RunConfig
    from foretaste.runs.loading import load_model
    from foretaste.runs.metrics_log import MetricsLog
    from foretaste.runs.run import Run, default_run_name, unused_run_path

_MODULE_OF = {
    "DatasetReference": "config",
    "MetricsLog": "metrics_log",
    "Run": "run",
    "RunConfig": "config",
    "default_run_name": "run",
    "load_model": "loading",
    "unused_run_path": "run",
}

__all__ = [
    "DatasetReference",
    "MetricsLog",
    "Run",
    "RunConfig",
    "default_run_name",
    "load_model",
    "unused_run_path",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
