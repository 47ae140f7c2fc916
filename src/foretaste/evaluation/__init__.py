"""Evaluation of models: candidates, ranking, metrics with their intervals, comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.evaluation.config import (
        CandidateRule,
        EvaluationConfig,
        metric_name,
        parse_metric,
    )
    from foretaste.evaluation.evaluator import evaluate
    from foretaste.evaluation.result import (
        Difference,
        Evaluation,
        Metric,
        compare_evaluations,
        paired_difference,
    )

_MODULE_OF = {
    "CandidateRule": "config",
    "Difference": "result",
    "Evaluation": "result",
    "EvaluationConfig": "config",
    "Metric": "result",
    "compare_evaluations": "result",
    "evaluate": "evaluator",
    "metric_name": "config",
    "paired_difference": "result",
    "parse_metric": "config",
}

__all__ = [
    "CandidateRule",
    "Difference",
    "Evaluation",
    "EvaluationConfig",
    "Metric",
    "compare_evaluations",
    "evaluate",
    "metric_name",
    "paired_difference",
    "parse_metric",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)
