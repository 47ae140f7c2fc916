"""Evaluations of runs for people, side by side and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.report.evaluate_runs import Comparison, compare_runs, evaluate_run

_MODULE_OF = {
    "Comparison": "evaluate_runs",
    "compare_runs": "evaluate_runs",
    "evaluate_run": "evaluate_runs",
}

__all__ = ["Comparison", "compare_runs", "evaluate_run"]


__getattr__ = lazy_names(__name__, _MODULE_OF)
