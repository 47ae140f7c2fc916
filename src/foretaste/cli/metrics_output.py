"""Evaluations as the formats that ``evaluate`` and ``compare`` print."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from foretaste._util.terminal import printable_lines
from foretaste.cli.console import say, stdout_console
from foretaste.report.tables import Grid

MetricsFormat = Literal["table", "markdown", "csv", "json"]


DEFINED_ELSEWHERE = "definitions: --definitions prints them here, docs/metrics.md has them all"
"""Below numbers whose definitions are not printed with them."""


def print_metrics(
    records: Sequence[Mapping[str, Any]],
    grids: Sequence[tuple[str, Grid]],
    notes: Sequence[str],
    format: MetricsFormat,
) -> None:
    """Print evaluations.

    ``grids``, each below its heading, and ``notes`` are for people; ``csv`` and ``json`` hold the
    ``records``, one per metric and run.
    """
    if format == "csv":
        writer = csv.DictWriter(
            sys.stdout, list(records[0]) if records else [], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(records)
    elif format == "json":
        print(printable_lines(json.dumps(records, indent=2, ensure_ascii=False)))
    else:
        _print_grids(grids, notes, format)


def _print_grids(
    grids: Sequence[tuple[str, Grid]], notes: Sequence[str], format: MetricsFormat
) -> None:
    console = stdout_console()
    for heading, grid in grids:
        if heading:
            say(console, heading)
        if format == "markdown":
            say(console, f"\n{grid.to_markdown()}\n")
        else:
            console.print(grid.to_rich())
    for note in notes:
        say(console, f"- {note}" if format == "markdown" else note, "dim", folded=True)
