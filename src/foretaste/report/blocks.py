"""Parts of a page: sections of text, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretaste._util.formatting import pluralize

if TYPE_CHECKING:
    import altair as alt

    from foretaste.measure.tables import Grid


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its caption."""

    caption: str
    grid: Grid


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Plots side by side, with a caption and an alternative text."""

    caption: str
    alternative: str
    charts: tuple[alt.LayerChart, ...]
    key: tuple[str, ...] = ()
    """Runs or parts in the key of symbols or shades beside the plots."""
    of: str = "run"
    """The kind of names in the key: ``run`` or ``part``."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section with a heading, paragraphs, plots and tables."""

    name: str
    heading: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def figure(
    labels: Sequence[str],
    caption: str,
    charts: Sequence[alt.LayerChart],
    *,
    is_keyed: bool = False,
    numbers: str = "the tables of this section",
) -> Figure:
    """Return plots of runs; ``is_keyed`` adds a key, for plots that do not name the runs.

    ``numbers`` names the place of the plotted numbers, for the alternative text.
    """
    return Figure(
        caption=caption,
        alternative=f"{caption}: {pluralize(len(labels), 'run')}, {', '.join(labels)}. "
        f"The numbers are in {numbers}.",
        charts=tuple(charts),
        key=tuple(labels) if is_keyed and len(labels) > 1 else (),
    )
