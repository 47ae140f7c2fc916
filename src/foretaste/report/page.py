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
from foretaste._util.atomic import atomic_file
from foretaste._util.terminal import printable
from foretaste.report import plots
from foretaste.report.contents import RunsReport
from foretaste.report.sections import sections, summary

_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def write_page(report: RunsReport, path: Path) -> None:
    """Write a report to ``path``, in the format of its ending."""
    environment = Environment(
        loader=PackageLoader("foretaste", "report/templates"),
        autoescape=lambda name: name != "page.md",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"svg": _inline, "md": _markdown}
    environment.filters |= {"shade": plots.shade, "symbol": plots.symbol}
    found = sections(report)
    if path.suffix == ".md":
        folder = plots_folder(path)
        folder.mkdir(exist_ok=True)
        for figure in [figure for section in found for figure in section.figures]:
            charts = [*figure.charts, *([plots.key(figure.key, figure.of)] if figure.key else [])]
            _write(folder / f"{figure.name}.svg", plots.svg_file(charts, figure.alternative))
    text = environment.get_template(f"page{path.suffix}").render(
        report=report,
        summary=summary(report),
        sections=found,
        notes=report.comparison.notes(report.metrics),
        folder=plots_folder(path).name,
        version=foretaste.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    _write(path, text)


def plots_folder(path: Path) -> Path:
    """The folder beside a page in Markdown that has its plots."""
    return path.with_name(f"{path.stem}-plots")


def _inline(chart: alt.LayerChart, alternative: str) -> Markup:
    """A drawing that stands in a page, and scales with it."""
    head, rest = plots.svg(chart).split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{html.escape(alternative)}">{rest}')


def _markdown(text: object) -> str:
    """Text on one line that Markdown, and the HTML in it, takes as it stands."""
    line = " ".join(printable(str(text)).split())
    return _SPECIAL.sub(r"\\\1", html.escape(line, quote=False))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
