"""Pages of reports: one HTML file that loads nothing, or Markdown with SVG files beside it."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path

import altair as alt
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import foretaste
from foretaste._util.atomic import atomic_directory, atomic_file
from foretaste._util.terminal import printable
from foretaste.report import plots, records, sections
from foretaste.report.blocks import Section
from foretaste.report.contents import RunsReport, check_place, plots_folder

_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def write_page(report: RunsReport, path: Path, *, overwrite: bool) -> None:
    """Write a report to ``path``, in the format of its ending."""
    environment = Environment(
        loader=PackageLoader("foretaste", "report/templates"),
        autoescape=lambda name: name != "page.md",
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"svg": _inline, "md": _markdown}
    environment.filters |= {"shade": plots.shade, "symbol": plots.symbol}
    found = _sections(report)
    if path.suffix == ".md":
        with atomic_directory(folder := plots_folder(path), replace=overwrite) as directory:
            for figure in [figure for section in found for figure in section.figures]:
                keys = [plots.key(figure.key, figure.of)] if figure.key else []
                charts = [*figure.charts, *keys]
                text = plots.svg_file(charts, figure.alternative)
                (directory / f"{figure.name}.svg").write_text(text, "utf-8", newline="\n")
            check_place(folder, overwrite=overwrite)
    text = environment.get_template(f"page{path.suffix}").render(
        report=report,
        summary=sections.summary(report.dataset, report.comparison, report.focus),
        sections=found,
        notes=report.comparison.notes(report.metrics),
        folder=plots_folder(path).name,
        version=foretaste.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    with atomic_file(path, replace=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _sections(report: RunsReport) -> list[Section]:
    """The sections with figures or tables, in the order of the page."""
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
    """The SVG of a plot inside a page, which scales with the page."""
    head, rest = plots.svg(chart).split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{html.escape(printable(alternative))}">{rest}')


def _safe(value: object) -> object:
    """A value for a page; unsafe characters in text, such as in names and titles, are escaped."""
    return printable(value) if type(value) is str else value


def _markdown(text: object) -> str:
    """Text on one line, escaped for Markdown and the HTML in it."""
    line = " ".join(printable(str(text)).split())
    return _SPECIAL.sub(r"\\\1", html.escape(line, quote=False))
