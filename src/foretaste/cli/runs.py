"""``foretaste runs`` and ``verify``: the list of runs, and the check of datasets and runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import MetricsFormat, print_metrics, say, stdout_console
from foretaste.measure.tables import Cell, Grid

_HEADINGS = ("", "model", "dataset", "metric", "validation", "test", "time", "")


def runs(
    folder: Path = Path("runs"),
    /,
    *,
    format: MetricsFormat = "table",
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """List the runs of a folder, the oldest first and unreadable ones last.

    Args:
        folder: Folder of the runs.
        format: Format of the printed list; csv and json have more of each run.
        quiet: Print the directories of readable runs and nothing else, one per line.
    """
    from foretaste.runs import list_runs

    listed = list_runs(folder)
    if quiet:
        for run in listed:
            if not run.is_damaged:
                say(stdout_console(), str(run.path))
        return
    rows = []
    for run in listed:
        if run.is_damaged:
            continue
        # The state of a finished run is not shown.
        remarks = [run.state] if run.state != "finished" else []
        if run.candidates not in (None, "full"):
            remarks.append(f"candidates {run.candidates}")
        values = (
            *(run.model, run.dataset, run.metric),
            *("-" if value is None else f"{value:.4f}" for value in (run.validation, run.test)),
            "-" if run.train_s is None else f"{run.train_s:,.2f} s",
            ", ".join(remarks),
        )
        cells = tuple(Cell("-" if value is None else value) for value in values)
        rows.append((run.path.name, cells))
    notes = [f"{run.path} {run.state}" for run in listed if run.is_damaged]
    if not listed:
        notes = [f"{folder}: no runs"]
    grids = [("", Grid(headings=_HEADINGS, rows=tuple(rows)))] if rows else []
    records = [asdict(run) | {"path": str(run.path)} for run in listed]
    print_metrics(records, grids, notes, format)


def verify(paths: list[Path], /, *, quiet: Annotated[bool, FLAG] = False) -> None:
    """Check every file of a dataset or run.

    Args:
        paths: Directories of datasets and runs.
        quiet: Print the problems and nothing else.
    """
    from foretaste.errors import RunError
    from foretaste.runs import verify as verify_directory

    problems = []
    for path in paths:
        try:
            found = verify_directory(path)
        except RunError as error:  # neither a dataset nor a run; the other paths still count
            found = [str(error)]
        problems += found
        if not found and not quiet:
            say(stdout_console(), f"{path}: ok")
    if problems:
        raise RunError("\n".join(problems))
