"""What was measured, for people: evaluations of runs, side by side, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.report.judged_runs import Comparison, compare_runs, evaluate_run

_MODULE_OF = {
    "Comparison": "judged_runs",
    "compare_runs": "judged_runs",
    "evaluate_run": "judged_runs",
}

__all__ = ["Comparison", "compare_runs", "evaluate_run"]


__getattr__ = lazy_names(__name__, _MODULE_OF)
