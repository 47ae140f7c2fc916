"""What was measured, for people: evaluations of runs, side by side, as tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretaste.report.judged_runs import Comparison, compare_runs, dataset_of, evaluate_run

_MODULE_OF = {
    "Comparison": "judged_runs",
    "compare_runs": "judged_runs",
    "dataset_of": "judged_runs",
    "evaluate_run": "judged_runs",
}

__all__ = ["Comparison", "compare_runs", "dataset_of", "evaluate_run"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
