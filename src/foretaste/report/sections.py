"""Sections on the metrics of runs: text, tables and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretaste._util.documents import Document
from foretaste.evaluation.config import GROUPS, LIST_METRICS, METRICS, metric_name, parse_metric
from foretaste.evaluation.result import Difference, Metric
from foretaste.measure.tables import (
    GROUP_HEADINGS,
    LENGTHS,
    comparison_grid,
    difference_grid,
    group_grids,
    metric_cell,
)
from foretaste.report import plots
from foretaste.report.blocks import Section, Table, figure

if TYPE_CHECKING:
    from foretaste.data.dataset import Dataset
    from foretaste.evaluation.result import Evaluation
    from foretaste.measure.evaluate_runs import Comparison

_LIST_LENGTH = 10
"""Length of the lists for coverage, novelty and other metrics beyond accuracy."""


def summary(dataset: Dataset, comparison: Comparison, focus: str) -> list[str]:
    """Return sentences on the conditions, and on the run with the highest value of ``focus``."""
    evaluations = comparison.evaluations
    baseline, first = next(iter(evaluations.items()))
    lines = [f"{dataset.path.name}: {first.conditions()[0]}."]
    measured = {label: found.metrics[focus] for label, found in evaluations.items()}
    if len(measured) > 1:
        best, second, *_ = sorted(measured, key=lambda name: measured[name].value, reverse=True)
        lines.append(f"The highest {focus} is that of {best}: {metric_cell(measured[best])}.")
        other = second if best == baseline else best
        found = comparison.differences[other][focus]
        is_clear = "more than chance explains" if found.is_clear else "within chance"
        lines.append(
            f"{other} is {found.value:+.4f} ({found.interval()}) from {baseline}, on the same "
            f"users: {is_clear}."
        )
    return lines


def quality(comparison: Comparison, metrics: Sequence[str]) -> Section:
    evaluations, labels = comparison.evaluations, [*comparison.evaluations]
    first, names = labels[0], [name for name in metrics if _measured(evaluations, name)]
    tables = [
        Table(
            caption="Metrics with 95 % intervals over users",
            grid=comparison_grid(evaluations, names),
        )
    ]
    charts = [plots.dots(name, _rows_of_runs(evaluations, name), labels) for name in names]
    figures = [figure(labels, "Metrics with 95 % intervals over users", charts)]
    if comparison.differences:
        caption = f"Difference to {first} on the same users; a star if the interval leaves out 0"
        tables.append(Table(caption=caption, grid=difference_grid(comparison.differences, names)))
        charts = [
            plots.dots(
                f"{name} less {first}'s",
                [
                    {"run": label, **_interval(found[name])}
                    for label, found in comparison.differences.items()
                    if name in found
                ],
                labels,
                0.0,
            )
            for name in names
        ]
        figures.append(figure(labels, f"Difference to {first}", charts))
    return Section(
        name="quality",
        heading="Quality",
        figures=tuple(figures),
        tables=tuple(tables),
    )


def by_length(evaluations: Mapping[str, Evaluation]) -> Section:
    labels = [*evaluations]
    kinds = [k for k in ("ndcg", "recall", "hr") if _measured(evaluations, metric_name(k, 10))]
    charts, tables = [], []
    for kind in kinds:
        names = [name for k in LENGTHS if _measured(evaluations, name := metric_name(kind, k))]
        rows = [
            {"run": label, "x": parse_metric(name)[1], "value": found.metrics[name].value}
            for label, found in evaluations.items()
            for name in names
        ]
        charts.append(plots.lines("length of the list", f"{kind}@k", rows, labels, is_log=True))
        tables.append(
            Table(caption=f"{kind}: {METRICS[kind]}", grid=comparison_grid(evaluations, names))
        )
    caption = "Metrics by the length of the list"
    return Section(
        name="by-length",
        heading="Quality by length of the list",
        figures=(figure(labels, caption, charts, is_keyed=True),),
        tables=tuple(tables),
    )


def groups(evaluations: Mapping[str, Evaluation], focus: str) -> Section:
    labels = [*evaluations]
    charts = [
        plots.groups(GROUP_HEADINGS[by].rstrip(":"), focus, rows, labels)
        for by in ("activity", "popularity")
        if (rows := _rows_of_groups(evaluations, by, focus))
    ]
    caption = f"{focus} by users' activity and items' popularity, with 95 % intervals"
    return Section(
        name="groups",
        heading="Quality by users' activity and items' popularity",
        text=tuple(f"{GROUPS[by].capitalize()}." for by in ("activity", "popularity")),
        figures=(figure(labels, caption, charts, is_keyed=True),),
        tables=tuple(_group_tables(evaluations, focus, "activity", "popularity")),
    )


def history_lengths(evaluations: Mapping[str, Evaluation], focus: str) -> Section:
    labels = [*evaluations]
    rows = [
        {**row, "x": int(row["group"].split()[0].replace(",", ""))}
        for row in _rows_of_groups(evaluations, "history", focus)
    ]
    charts = [
        plots.lines("items known of the user", focus, rows, labels, is_log=True)
    ] if rows else []  # fmt: skip
    caption = f"{focus} for new users by the number of items known, with 95 % intervals"
    return Section(
        name="history-lengths",
        heading="New users by length of history",
        text=(f"{GROUPS['history'].capitalize()}.",),
        figures=(figure(labels, caption, charts, is_keyed=True),) if charts else (),
        tables=tuple(_group_tables(evaluations, focus, "history")),
    )


def lists(evaluations: Mapping[str, Evaluation], dataset: Dataset) -> Section:
    labels = [*evaluations]
    num_items = dataset.manifest.num_items
    count_I = np.bincount(dataset.train.item_index, minlength=num_items).astype(np.float64)
    from foretaste.evaluation.lists import ITEM_GROUPS, item_groups

    is_tail_I = item_groups(count_I) == ITEM_GROUPS.index("tail")
    share = float(count_I[is_tail_I].sum() / count_I.sum())
    references = {"coverage": None, "long_tail": share, "popularity_lift": 0.0}
    charts = []
    for kind in dict.fromkeys((*references, *LIST_METRICS)):
        name = metric_name(kind, _LIST_LENGTH)
        if _measured(evaluations, name):
            reference = references.get(kind)
            charts.append(plots.dots(name, _rows_of_runs(evaluations, name), labels, reference))
    names = [metric_name(kind, _LIST_LENGTH) for kind in ("coverage", *LIST_METRICS)]
    names = [name for name in names if _measured(evaluations, name)]
    text = [f"{parse_metric(name)[0]}: {METRICS[parse_metric(name)[0]]}." for name in names]
    text.append(
        f"Dashed lines are the training data: {share:.3f} of its interactions are with items of "
        "the long tail, and lists as popular as users' histories have a lift of 0."
    )
    caption = "Coverage, long tail and popularity of the lists, against training"
    return Section(
        name="lists",
        heading="Beyond accuracy",
        text=tuple(text),
        figures=(figure(labels, caption, charts),) if charts else (),
        tables=(
            Table(
                caption=f"Lists of {_LIST_LENGTH} beyond accuracy, with 95 % intervals over users",
                grid=comparison_grid(evaluations, names),
            ),
        )
        if names
        else (),
    )


def _measured(evaluations: Mapping[str, Evaluation], name: str) -> bool:
    """Return True if every run has the metric."""
    return all(name in found.metrics for found in evaluations.values())


def _rows_of_runs(evaluations: Mapping[str, Evaluation], name: str) -> list[Document]:
    return [
        {"run": label, **_interval(found.metrics[name])} for label, found in evaluations.items()
    ]


def _rows_of_groups(evaluations: Mapping[str, Evaluation], by: str, focus: str) -> list[Document]:
    return [
        {
            "run": label,
            "group": group.name.removesuffix(" items"),
            **_interval(group.metrics[focus]),
        }
        for label, found in evaluations.items()
        for group in found.groups
        if group.by == by
    ]


def _group_tables(
    evaluations: Mapping[str, Evaluation], focus: str, *kinds: str
) -> Iterator[Table]:
    captions = {GROUP_HEADINGS[by] for by in kinds}
    for heading, grid in group_grids(evaluations, [focus]):
        if heading in captions:
            yield Table(caption=heading.rstrip(":"), grid=grid)


def _interval(number: Metric | Difference) -> dict[str, float | None]:
    return {"value": number.value, "low": number.low, "high": number.high}
