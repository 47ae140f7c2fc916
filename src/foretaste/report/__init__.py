"""Evaluations of runs for people: side by side, as tables, and as reports with plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.report.contents import RunsReport, report_runs
    from foretaste.report.evaluate_runs import Comparison, compare_runs, evaluate_run

_MODULE_OF = {
    "Comparison": "evaluate_runs",
    "RunsReport": "contents",
    "compare_runs": "evaluate_runs",
    "evaluate_run": "evaluate_runs",
    "report_runs": "contents",
}

__all__ = ["Comparison", "RunsReport", "compare_runs", "evaluate_run", "report_runs"]


__getattr__ = lazy_names(__name__, _MODULE_OF)
