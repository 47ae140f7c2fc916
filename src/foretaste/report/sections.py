"""Sections of a report: the numbers of its runs as text, tables and plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foretaste.evaluation.config import GROUPS, LIST_METRICS, METRICS, metric_name, parse_metric
from foretaste.report import plots, records
from foretaste.report.blocks import Section, Table, figure
from foretaste.report.contents import LENGTHS, RunsReport
from foretaste.report.tables import (
    GROUP_HEADINGS,
    comparison_grid,
    difference_grid,
    group_grids,
    metric_cell,
)

_LIST_LENGTH = 10
"""Length of the lists that are measured beyond accuracy."""


def sections(report: RunsReport) -> list[Section]:
    """The sections in the order of the page, those alone that have something to show."""
    makers = (
        *(quality, by_length, records.learning, groups, history_lengths, lists, novelty),
        *(records.time, records.settings, records.origin),
    )
    found = (make(report) for make in makers)
    return [section for section in found if section.figures or section.tables]


def summary(report: RunsReport) -> list[str]:
    """Sentences on what was measured, and on the run with the highest value."""
    evaluations = report.comparison.evaluations
    first = next(iter(evaluations.values()))
    lines = [f"{report.dataset.path.name}: {first.conditions()[0]}."]
    measured = {label: found.metrics[report.focus] for label, found in evaluations.items()}
    if len(measured) > 1:
        best, second, *_ = sorted(measured, key=lambda name: measured[name].value, reverse=True)
        lines.append(
            f"The highest {report.focus} is that of {best}: {metric_cell(measured[best])}."
        )
        baseline = report.labels[0]
        other = second if best == baseline else best
        found = report.comparison.differences[other][report.focus]
        is_clear = "more than chance explains" if found.is_clear else "within chance"
        lines.append(
            f"{other} is {found.value:+.4f} ({found.interval()}) from {baseline}, on the same "
            f"users: {is_clear}."
        )
    return lines


def quality(report: RunsReport) -> Section:
    comparison, labels = report.comparison, report.labels
    first, names = labels[0], [name for name in report.metrics if _measured(report, name)]
    tables = [
        Table(
            caption="Metrics with 95 % intervals over users",
            grid=comparison_grid(comparison.evaluations, names),
        )
    ]
    charts = [plots.dots(name, _of_runs(report, name), labels) for name in names]
    figures = [figure(labels, "metrics", "Metrics with 95 % intervals over users", charts)]
    if comparison.differences:
        caption = f"Difference to {first} on the same users; a star where the interval leaves out 0"
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
        figures.append(figure(labels, "differences", f"Difference to {first}", charts))
    return Section(
        name="quality",
        heading="Quality",
        figures=tuple(figures),
        tables=tuple(tables),
    )


def by_length(report: RunsReport) -> Section:
    evaluations, labels = report.comparison.evaluations, report.labels
    kinds = [kind for kind in ("ndcg", "recall", "hr") if _measured(report, metric_name(kind, 10))]
    charts, tables = [], []
    for kind in kinds:
        names = [name for k in LENGTHS if _measured(report, name := metric_name(kind, k))]
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
        figures=(figure(report.labels, "by-length", caption, charts, is_keyed=True),),
        tables=tuple(tables),
    )


def groups(report: RunsReport) -> Section:
    charts = [
        plots.groups(GROUP_HEADINGS[by].rstrip(":"), report.focus, rows, report.labels)
        for by in ("activity", "popularity")
        if (rows := _of_groups(report, by))
    ]
    caption = f"{report.focus} by users' activity and items' popularity, with 95 % intervals"
    return Section(
        name="groups",
        heading="Quality by users' activity and items' popularity",
        text=tuple(f"{GROUPS[by].capitalize()}." for by in ("activity", "popularity")),
        figures=(figure(report.labels, "groups", caption, charts, is_keyed=True),),
        tables=tuple(_group_tables(report, "activity", "popularity")),
    )


def history_lengths(report: RunsReport) -> Section:
    rows = [
        {**row, "x": int(row["group"].split()[0].replace(",", ""))}
        for row in _of_groups(report, "history")
    ]
    charts = [
        plots.lines("items known of the user", report.focus, rows, report.labels, is_log=True)
    ] if rows else []  # fmt: skip
    caption = f"{report.focus} for new users by the number of items known, with 95 % intervals"
    return Section(
        name="history-lengths",
        heading="New users by length of history",
        text=(f"{GROUPS['history'].capitalize()}.",),
        figures=(figure(report.labels, "history-lengths", caption, charts, is_keyed=True),)
        if charts
        else (),
        tables=tuple(_group_tables(report, "history")),
    )


def lists(report: RunsReport) -> Section:
    labels = report.labels
    count_I = np.bincount(
        report.dataset.train.item_index, minlength=report.dataset.manifest.num_items
    ).astype(np.float64)
    from foretaste.evaluation.lists import ITEM_GROUPS, item_groups

    is_tail_I = item_groups(count_I) == ITEM_GROUPS.index("tail")
    share = float(count_I[is_tail_I].sum() / count_I.sum())
    references = {"coverage": None, "long_tail": share, "popularity_lift": 0.0, "novelty": None}
    charts = []
    for kind, reference in references.items():
        name = metric_name(kind, _LIST_LENGTH)
        if _measured(report, name):
            charts.append(plots.dots(name, _of_runs(report, name), labels, reference))
    names = [metric_name(kind, _LIST_LENGTH) for kind in ("coverage", *LIST_METRICS)]
    names = [name for name in names if _measured(report, name)]
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
        figures=(figure(report.labels, "lists", caption, charts),) if charts else (),
        tables=(
            Table(
                caption=f"Lists of {_LIST_LENGTH} beyond accuracy, with 95 % intervals over users",
                grid=comparison_grid(report.comparison.evaluations, names),
            ),
        )
        if names
        else (),
    )


def novelty(report: RunsReport) -> Section:
    name, labels = metric_name("novelty", _LIST_LENGTH), report.labels
    figures = []
    if _measured(report, name):
        rows = [
            {**value, "x": found["value"], "x_low": found["low"], "x_high": found["high"]}
            for value, found in zip(
                _of_runs(report, report.focus), _of_runs(report, name), strict=True
            )
        ]
        chart = plots.scatter(f"{name}, bits", report.focus, rows, labels)
        caption = f"{report.focus} against {name}; above and to the right is better"
        numbers = "the tables of the sections Quality and Beyond accuracy"
        figures.append(figure(labels, "novelty", caption, [chart], is_keyed=True, numbers=numbers))
    return Section(name="novelty", heading="Accuracy against novelty", figures=tuple(figures))


def _measured(report: RunsReport, name: str) -> bool:
    """True where every run has the metric."""
    return all(name in found.metrics for found in report.comparison.evaluations.values())


def _of_runs(report: RunsReport, name: str) -> list[dict[str, Any]]:
    evaluations = report.comparison.evaluations
    return [
        {"run": label, **_interval(found.metrics[name])} for label, found in evaluations.items()
    ]


def _of_groups(report: RunsReport, by: str) -> list[dict[str, Any]]:
    return [
        {
            "run": label,
            "group": group.name.removesuffix(" items"),
            **_interval(group.metrics[report.focus]),
        }
        for label, found in report.comparison.evaluations.items()
        for group in found.groups
        if group.by == by
    ]


def _group_tables(report: RunsReport, *kinds: str) -> Iterator[Table]:
    captions = {GROUP_HEADINGS[by] for by in kinds}
    for heading, grid in group_grids(report.comparison.evaluations, [report.focus]):
        if heading in captions:
            yield Table(caption=heading.rstrip(":"), grid=grid)


def _interval(number: Any) -> dict[str, float | None]:
    return {"value": number.value, "low": number.low, "high": number.high}
