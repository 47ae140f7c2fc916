"""Evaluations as tables: on a terminal, in Markdown, and as plain rows for other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretaste.evaluation.config import METRICS, metric_name, parse_metric

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from foretaste.evaluation.result import Difference, Evaluation, Metric

HEADLINE = ("hr@10", "ndcg@10", "recall@20", "ndcg@100")
"""Metrics that compare models unless others are asked for."""


@dataclass(frozen=True)
class Cell:
    """A number as text, and the interval around it."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.interval})" if self.interval else self.value


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table before it is drawn."""

    headings: tuple[str, ...]
    """One per column; the first is of the labels."""

    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    """The label of each row, and its cells."""

    def to_rich(self) -> Table:
        """The table for a terminal, intervals below their numbers."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if number else "left", no_wrap=number > 0)
        for label, cells in self.rows:
            drawn = [
                Text(cell.value).append(f"\n{cell.interval}" if cell.interval else "", "dim")
                for cell in cells
            ]
            table.add_row(Text(label), *drawn)
        return table

    def to_markdown(self) -> str:
        """The table in Markdown, intervals in brackets behind their numbers."""
        rule = ("---", *("---:" for _ in self.headings[1:]))
        rows = [(label, *map(str, cells)) for label, cells in self.rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.headings, rule, *rows))


def evaluation_grid(evaluation: Evaluation, lengths: Sequence[int] | None = None) -> Grid:
    """One evaluation: a row per kind of metric, a column per list length (all unless given)."""
    names = [parse_metric(name) for name in evaluation.metrics]
    shown = sorted({k for _, k in names if lengths is None or k in lengths})
    kinds = [kind for kind in METRICS if any(kind == found for found, _ in names)]
    rows = [
        (kind, tuple(_cell(evaluation.metrics.get(metric_name(kind, k))) for k in shown))
        for kind in kinds
    ]
    return Grid(headings=("metric", *(f"@{k}" for k in shown)), rows=tuple(rows))


def comparison_grid(evaluations: Mapping[str, Evaluation], names: Sequence[str]) -> Grid:
    """Evaluations by label: a row each, a column per metric name."""
    metrics = {label: evaluation.metrics for label, evaluation in evaluations.items()}
    return _labelled_grid(metrics, names)


def difference_grid(
    differences: Mapping[str, Mapping[str, Difference]], names: Sequence[str]
) -> Grid:
    """Paired differences by label and metric name; a star marks intervals without zero."""
    return _labelled_grid(differences, names)


def _labelled_grid(
    numbers: Mapping[str, Mapping[str, Metric | Difference]], names: Sequence[str]
) -> Grid:
    rows = [
        (label, tuple(_cell(found.get(name)) for name in names)) for label, found in numbers.items()
    ]
    return Grid(headings=("", *names), rows=tuple(rows))


def metric_rows(run: Path, label: str, evaluation: Evaluation) -> list[dict[str, Any]]:
    """One flat record per metric, with all that must be named beside it."""
    return [
        {
            "run": str(run),
            "label": label,
            "split": evaluation.split,
            "protocol": evaluation.protocol,
            "candidates": evaluation.candidates,
            "num_users": evaluation.num_users,
            "metric": metric.name,
            "value": metric.value,
            "low": metric.low,
            "high": metric.high,
        }
        for metric in evaluation.metrics.values()
    ]


def _cell(number: Metric | Difference | None) -> Cell:
    return Cell("-") if number is None else Cell(number.text(), number.interval())
