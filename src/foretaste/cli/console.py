"""Printing: tables and colours on a terminal, plain lines in a pipe or a file."""

from __future__ import annotations

import csv
import io
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.text import Text

from foretaste._util.pace import Pace, PlainProgress
from foretaste._util.terminal import print_data, printable, printable_lines

if TYPE_CHECKING:
    from foretaste.report.tables import Grid
    from foretaste.runs import Run

MetricsFormat = Literal["table", "markdown", "csv", "json"]

_PIPE_WIDTH = 200
"""Columns a table may take where no terminal sets a limit."""


class TerminalConsole(Console):
    """A console that leaves it to the command to end when its reader has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout_console(*, quiet: bool = False) -> Console:
    """For results; a ``quiet`` one prints nothing."""
    return _console(stderr=False, quiet=quiet)


def stderr_console(*, quiet: bool = False) -> Console:
    """For what is not the result: progress and notes; a ``quiet`` one prints nothing."""
    return _console(stderr=True, quiet=quiet)


def note_if_unfinished(run: Run, *, quiet: bool = False) -> None:
    """Say that the training of a run whose weights were loaded has not come to its end."""
    if run.is_finished:
        return
    from foretaste.runs.places import resume_command

    text = f": the training is not finished; go on with: {resume_command(run.path)}"
    if process := run.training_process:
        text = f" is being trained by {process}"
        if run.loaded_epoch is not None:
            text += f"; these are the weights of epoch {run.loaded_epoch}"
    say(stderr_console(quiet=quiet), f"note: {run.path}{text}")


def say(
    console: Console, text: str = "", style: str | None = None, *, folded: bool = False
) -> None:
    """Print a line as it stands, without markup; prose may be ``folded`` to a terminal's width."""
    console.print(
        printable_lines(text),
        style=style,
        markup=False,
        highlight=False,
        soft_wrap=not (folded and console.is_terminal),
    )


def say_next(console: Console, *commands: tuple[object, ...], heading: str = "Next:") -> None:
    """Print commands to type next, quoted for a shell."""
    say(console, heading)
    for command in commands:
        say(console, f"  {shlex.join(map(str, command))}", style="cyan")


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
        text = io.StringIO()
        writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        print_data(text.getvalue(), end="")
        return
    if format == "json":
        print_data(printable_lines(json.dumps(records, indent=2, ensure_ascii=False)))
        return
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


@contextmanager
def counting(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, moved by how many of how many are done; a line every half minute where that
    is no terminal."""
    console = stderr_console(quiet=quiet)
    if not console.is_terminal:
        pace, tell = Pace(time.perf_counter(), 0), PlainProgress(partial(say, console))

        def told(done: int, total: int) -> None:
            tell(label, done / total, pace.seconds_to(total, time.perf_counter(), done))

        yield told
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=quiet,
    ) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def steps(label: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line on stderr that names the step under way; where that is no terminal, one every half
    minute at most."""
    console = stderr_console(quiet=quiet)
    if not console.is_terminal:
        plain = PlainProgress(partial(say, console))
        yield lambda step: say(console, f"{label}: {step}") if plain.is_due() else None
        return
    with console.status(label) as status:
        yield lambda step: status.update(Text(printable(f"{label}: {step}")))


def _console(*, stderr: bool, quiet: bool) -> Console:
    console = TerminalConsole(stderr=stderr, quiet=quiet, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
