"""Plots as SVG, drawn by Altair; their colours are CSS variables of the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

from foretaste._util.documents import Document
from foretaste._util.terminal import printable

Row = Mapping[str, Any]

SHAPES = {
    "circle": "●",
    "square": "■",
    "triangle-up": "▲",
    "diamond": "◆",
    "cross": "✚",
    "triangle-down": "▼",
    "triangle-right": "▶",
    "triangle-left": "◀",
}
"""Symbols of runs in the order of their colours, with a character for text."""

_WIDTH, _HEIGHT = 340, 220
_THEME = {
    "aria": False,
    "background": None,
    # Room for text: the reader's font may be wider than the one with which it was measured.
    "padding": {"left": 22, "top": 5, "right": 12, "bottom": 5},
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "gridColor": "var(--grid)",
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titlePadding": 10,
        "labelLimit": 120,
        "labelFlush": False,
    },
    "title": {"color": "currentColor", "fontSize": 12},
}
_TAG = re.compile(r"<[^>]+>")
_ATTRIBUTES = re.compile(r' (?:role|class|pointer-events|aria-\w+)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")


def shade(number: int) -> int:
    """Return the number of a colour, from 1, for the number of a run or part, from 0."""
    return number % len(SHAPES) + 1


def shape(number: int) -> str:
    """Return the shape of a run by its number; runs of the same colour have different shapes."""
    shapes = [*SHAPES]
    return shapes[(number + number // len(shapes)) % len(shapes)]


def symbol(number: int) -> str:
    """Return the character for the `shape` of a run."""
    return SHAPES[shape(number)]


def dots(
    title: str, rows: Sequence[Row], labels: Sequence[str], reference: float | None = None
) -> alt.LayerChart:
    """Return a plot: a row per run with value and interval, and a line at the ``reference``."""
    height = 24 * len(labels) + 48
    shown = {row["run"] for row in rows}
    base = _base(rows, height).encode(
        y=alt.Y(
            "run:N",
            title=None,
            scale=alt.Scale(domain=[label for label in labels if label in shown]),
        )
    )
    x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", color=_color(labels)),
        _points(base, labels).encode(x=x),
    ]
    if reference is not None:
        line = _base([{"value": reference}], height).mark_rule(
            color="currentColor", strokeDash=[4, 3]
        )
        layers.insert(0, line.encode(x=x))
    return alt.layer(*layers)


def lines(
    x_title: str, title: str, rows: Sequence[Row], labels: Sequence[str], *, is_log: bool = False
) -> alt.LayerChart:
    """Return a plot of one line per run through its values at ``x``, with intervals if given."""
    values = sorted({row["x"] for row in rows})
    axis = alt.Axis(values=values, format="d") if is_log else alt.Axis(tickMinStep=1)
    scale = alt.Scale(type="log" if is_log else "linear", zero=False, nice=False)
    base = _base(rows).encode(x=alt.X("x:Q", title=x_title, scale=scale, axis=axis))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    layers = [
        base.mark_line(strokeWidth=1.5).encode(y=y, color=_color(labels)),
        _points(base, labels, size=30).encode(y=y),
    ]
    if any("low" in row for row in rows):
        bars = base.mark_rule(strokeWidth=1, opacity=0.6)
        layers.insert(0, bars.encode(y=alt.Y("low:Q"), y2="high:Q", color=_color(labels)))
    return alt.layer(*layers)


def groups(x_title: str, title: str, rows: Sequence[Row], labels: Sequence[str]) -> alt.LayerChart:
    """Return a plot of the values and intervals of the runs, side by side in each ``group``."""
    base = _base(rows).encode(
        x=alt.X("group:N", title=x_title, sort=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("run:N", scale=alt.Scale(domain=list(labels))),
    )
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    bars = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2="high:Q", color=_color(labels))
    return alt.layer(bars, _points(base, labels).encode(y=y))


def bars(
    title: str, rows: Sequence[Row], labels: Sequence[str], parts: Sequence[str]
) -> alt.LayerChart:
    """Return a plot with one bar per run, stacked from the ``value`` of each ``part``."""
    numbered = [{**row, "order": parts.index(row["part"])} for row in rows]
    bar = _base(numbered, 24 * len(labels) + 48).mark_bar()
    return alt.layer(
        bar.encode(
            x=alt.X("value:Q", title=title),
            y=alt.Y("run:N", title=None, scale=alt.Scale(domain=list(labels))),
            color=_color(parts, "part"),
            order="order:Q",
        )
    )


def svg(chart: alt.LayerChart) -> str:
    """Return the SVG of one plot."""
    return _draw(chart.to_dict() | {"autosize": {"type": "fit", "contains": "padding"}})


def _base(rows: Sequence[Row], height: int = _HEIGHT) -> alt.Chart:
    data = alt.Data(values=[dict(row) for row in rows])
    return alt.Chart(data).properties(width=_WIDTH, height=height)


def _points(base: alt.Chart, labels: Sequence[str], size: int = 50) -> alt.Chart:
    scale = alt.Scale(domain=list(labels), range=[shape(at) for at in range(len(labels))])
    return base.mark_point(filled=True, opacity=1, size=size).encode(
        color=_color(labels), shape=alt.Shape("run:N", legend=None, scale=scale)
    )


def _color(names: Sequence[str], kind: str = "run") -> alt.Color:
    shades = [f"var(--{kind}-{shade(at)})" for at in range(len(names))]
    return alt.Color(f"{kind}:N", legend=None, scale=alt.Scale(domain=list(names), range=shades))


def _draw(spec: Document) -> str:
    themed = {**_printable(spec), "config": _THEME, "background": None}
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    drawn = vl_convert.vegalite_to_svg(themed, vl_version=version)
    # Remove attributes for screen readers, because the page describes the whole plot, and digits
    # below a hundredth of a pixel, which nobody sees.
    return _TAG.sub(lambda tag: _DIGITS.sub(r"\1", _ATTRIBUTES.sub("", tag[0])), drawn)


def _printable(value: Any) -> Any:
    """Return a part of a Vega-Lite specification with its texts escaped."""
    # A control character or U+FFFE in a text makes vl-convert abort the process.
    match value:
        case str():
            return printable(value)
        case list():
            return [_printable(one) for one in value]
        case dict():
            return {name: _printable(one) for name, one in value.items()}
    return value
