"""The page of a report: one HTML file that loads nothing."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import altair as alt
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import foretaste
from foretaste._util.files import atomic_file
from foretaste._util.terminal import printable
from foretaste.report import plots, records, sections
from foretaste.report.blocks import Section

if TYPE_CHECKING:
    from foretaste.report.contents import RunsReport  # which writes pages itself


def write_page(report: RunsReport, path: Path, *, overwrite: bool) -> None:
    """Write a report to ``path``."""
    environment = Environment(
        loader=PackageLoader("foretaste", "report/templates"),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"svg": _inline, "shade": plots.shade, "symbol": plots.symbol}
    text = environment.get_template("page.html").render(
        report=report,
        summary=sections.summary(report.dataset, report.comparison, report.focus),
        sections=_sections(report),
        notes=report.comparison.notes(report.metrics),
        version=foretaste.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    with atomic_file(path, replace=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _sections(report: RunsReport) -> list[Section]:
    """Return the sections with figures or tables, in the order of the page."""
    comparison, runs, focus = report.comparison, report.runs, report.focus
    evaluations = comparison.evaluations
    found = (
        sections.quality(comparison, report.metrics),
        sections.by_length(evaluations),
        records.learning(runs),
        sections.groups(evaluations, focus),
        sections.history_lengths(evaluations, focus),
        sections.lists(evaluations, report.dataset),
        records.time(runs, evaluations),
        records.settings(runs),
        records.origin(runs),
    )
    return [section for section in found if section.figures or section.tables]


def _inline(chart: alt.LayerChart, alternative: str) -> Markup:
    """Return the SVG of a plot inside a page, which scales with the page."""
    head, rest = plots.svg(chart).split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{html.escape(printable(alternative))}">{rest}')


def _safe(value: object) -> object:
    """Return a value for a page; unsafe characters in text, such as titles, are escaped."""
    return printable(value) if type(value) is str else value
