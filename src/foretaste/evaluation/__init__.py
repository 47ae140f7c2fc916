"""Evaluation of models: candidates, ranking, metrics with their intervals, comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.evaluation.compare import Difference, compare_evaluations, paired_difference
    from foretaste.evaluation.config import (
        CandidateRule,
        EvaluationConfig,
        metric_name,
        parse_metric,
    )
    from foretaste.evaluation.evaluator import evaluate
    from foretaste.evaluation.result import Evaluation, Group, Metric

_MODULE_OF = {
    "CandidateRule": "config",
    "Difference": "compare",
    "Evaluation": "result",
    "EvaluationConfig": "config",
    "Group": "result",
    "Metric": "result",
    "compare_evaluations": "compare",
    "evaluate": "evaluator",
    "metric_name": "config",
    "paired_difference": "compare",
    "parse_metric": "config",
}

__all__ = [
    "CandidateRule",
    "Difference",
    "Evaluation",
    "EvaluationConfig",
    "Group",
    "Metric",
    "compare_evaluations",
    "evaluate",
    "metric_name",
    "paired_difference",
    "parse_metric",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)
