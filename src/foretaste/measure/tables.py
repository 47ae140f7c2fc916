"""Evaluations as tables: on a terminal, in Markdown, and as plain rows for other programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretaste._util.documents import Document
from foretaste._util.formatting import html_table
from foretaste._util.terminal import printable
from foretaste.evaluation.config import METRICS, default_metric, metric_name, parse_metric

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from foretaste.evaluation.result import Difference, Evaluation, Group, Metric

GROUP_HEADINGS = {
    "activity": "Users by the number of items in their history:",
    "popularity": "Held-out items by their popularity in training:",
    "history": "New users by the number of items known of them:",
}
"""Headings of the tables of groups, by the kind of groups."""

HEADLINE = ("hr@10", "ndcg@10", "recall@20", "ndcg@100")
"""Default metrics of comparisons."""

LENGTHS = (1, 5, 10, 20, 50, 100)
"""Lengths of lists in the plots of metrics."""


def shown_metrics(names: Sequence[str], protocol: str) -> tuple[str, ...]:
    """Return the metrics of a comparison: ``names``, and before the default ones the metric that
    chooses under the protocol."""
    chosen = default_metric(protocol)
    if tuple(names) != HEADLINE or chosen in HEADLINE:
        return tuple(names)
    return (chosen, *HEADLINE)


def with_new_items(names: Sequence[str], evaluations: Iterable[Evaluation]) -> list[str]:
    """Return the metrics, each recall before the share of lists with a new item, if measured."""
    measured = {name for found in evaluations for name in found.metrics}
    shown = []
    for name in names:
        kind, k = parse_metric(name)
        share = metric_name("new_items", k)
        is_behind = kind in ("recall", "recall_all") and share in measured
        shown += [name, share] if is_behind else [name]
    return list(dict.fromkeys(shown))


@dataclass(frozen=True)
class Cell:
    """A number as text, with its interval."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.interval})" if self.interval else self.value


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table, independent of its format."""

    headings: tuple[str, ...]
    """The headings of the columns; the first column has the labels."""

    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    """The label and the cells of each row."""

    def to_rich(self) -> Table:
        """Return the table for a terminal, with intervals below their numbers."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if number else "left", no_wrap=number > 0)
        for label, cells in self.rows:
            drawn = [
                Text(printable(cell.value)).append(
                    f"\n{cell.interval}" if cell.interval else "", "dim"
                )
                for cell in cells
            ]
            table.add_row(Text(printable(label)), *drawn)
        return table

    def to_markdown(self) -> str:
        """Return the table in Markdown, with intervals in brackets after their numbers."""
        rule = ("---", *("---:" for _ in self.headings[1:]))
        rows = [(label, *map(str, cells)) for label, cells in self.rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.headings, rule, *rows))


class Tabular(ABC):
    """Results in a directory that are printed as a table with notes below it."""

    path: Path

    @abstractmethod
    def grid(self) -> Grid:
        """Return the table."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Return lines to print below the table."""

    def __str__(self) -> str:
        return "\n".join([self.grid().to_markdown(), "", *self.notes()])

    def _repr_html_(self) -> str:
        grid = self.grid()
        rows = [(label, *cells) for label, cells in grid.rows]
        return html_table(str(self.path), grid.headings, rows, "; ".join(self.notes()))


def evaluation_grid(evaluation: Evaluation, lengths: Sequence[int] | None = None) -> Grid:
    """Return an evaluation's table: a row per kind of metric, a column per length (all if None)."""
    names = [parse_metric(name) for name in evaluation.metrics]
    shown = sorted({k for _, k in names if lengths is None or k in lengths})
    kinds = [kind for kind in METRICS if any(kind == found for found, _ in names)]
    rows = [
        (kind, tuple(metric_cell(evaluation.metrics.get(metric_name(kind, k))) for k in shown))
        for kind in kinds
    ]
    return Grid(headings=("metric", *(f"@{k}" for k in shown)), rows=tuple(rows))


def comparison_grid(evaluations: Mapping[str, Evaluation], names: Sequence[str]) -> Grid:
    """Return a table of evaluations: one row per label, one column per metric."""
    metrics = {label: evaluation.metrics for label, evaluation in evaluations.items()}
    return difference_grid(metrics, names)


def difference_grid(
    numbers: Mapping[str, Mapping[str, Metric | Difference]], names: Sequence[str]
) -> Grid:
    """Return metrics or paired differences by label and name; a star marks intervals without 0."""
    rows = [
        (label, tuple(metric_cell(found.get(name)) for name in names))
        for label, found in numbers.items()
    ]
    return Grid(headings=("", *names), rows=tuple(rows))


def group_grids(
    evaluations: Mapping[str, Evaluation], metrics: Sequence[str] = HEADLINE
) -> list[tuple[str, Grid]]:
    """Return a heading and a table for each kind of groups, with one column per group.

    The rows are the given metrics of held-out items, or the first two metrics of the groups if
    there are none. With several evaluations, each metric has one row per label.
    """
    found = {label: evaluation.groups for label, evaluation in evaluations.items()}
    groups = [group for several in found.values() for group in several]
    measured = groups[0].metrics if groups else {}
    shown = [name for name in dict.fromkeys(metrics) if name in measured] or list(measured)[:2]
    return [
        (GROUP_HEADINGS[by], _group_grid(found, by, shown))
        for by in dict.fromkeys(group.by for group in groups)
    ]


def _group_grid(found: Mapping[str, Sequence[Group]], by: str, metrics: Sequence[str]) -> Grid:
    named = {
        label: {group.name: group for group in groups if group.by == by}
        for label, groups in found.items()
    }
    names = list(dict.fromkeys(name for groups in named.values() for name in groups))
    counts = {
        label: tuple(
            Cell(f"{groups[name].num_users:,}" if name in groups else "-") for name in names
        )
        for label, groups in named.items()
    }
    if len(set(counts.values())) == 1:
        counts = {"": next(iter(counts.values()))}
    rows = [(f"users {label}".rstrip(), cells) for label, cells in counts.items()]
    for metric in metrics:
        for label, groups in named.items():
            cells = (groups[name].metrics.get(metric) if name in groups else None for name in names)
            heading = metric if len(named) == 1 else f"{metric} {label}"
            rows.append((heading, tuple(map(metric_cell, cells))))
    return Grid(headings=("", *names), rows=tuple(rows))


def metric_rows(run: Path, label: str, evaluation: Evaluation) -> list[Document]:
    """Return one flat record per metric, for all users and for each group, with its conditions."""
    whole = (None, None, evaluation.num_users, evaluation.metrics)
    groups = [(group.by, group.name, group.num_users, group.metrics) for group in evaluation.groups]
    return [
        {
            "run": str(run),
            "label": label,
            "split": evaluation.split,
            "protocol": evaluation.protocol,
            "candidates": evaluation.candidates,
            "by": by,
            "group": name,
            "num_users": num_users,
            "metric": metric.name,
            "value": metric.value,
            "low": metric.low,
            "high": metric.high,
        }
        for by, name, num_users, metrics in [whole, *groups]
        for metric in metrics.values()
    ]


def metric_cell(number: Metric | Difference | None) -> Cell:
    """Return the cell of a number with its interval; a dash for None."""
    return Cell("-") if number is None else Cell(number.text(), number.interval())
