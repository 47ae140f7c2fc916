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
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.text import Text

from foretaste._util.documents import Json
from foretaste._util.pace import Pace, PlainProgress
from foretaste._util.terminal import print_data, printable, printable_lines

if TYPE_CHECKING:
    from foretaste.measure.tables import Grid
    from foretaste.runs import Run

MetricsFormat = Literal["table", "markdown", "csv", "json"]

_PIPE_WIDTH = 200
"""Width of tables in a pipe or file, in characters."""


class TerminalConsole(Console):
    """A console whose closed pipe is an exception, so that the command exits with its status."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout_console(*, quiet: bool = False) -> Console:
    """Return the console for results; with ``quiet`` it prints nothing."""
    return _console(stderr=False, quiet=quiet)


def stderr_console(*, quiet: bool = False) -> Console:
    """Return the console for progress and notes; with ``quiet`` it prints nothing."""
    return _console(stderr=True, quiet=quiet)


def note_if_unfinished(run: Run, *, quiet: bool = False) -> None:
    """Print a note if the training of a loaded run is not finished."""
    if run.is_finished:
        return
    text = f": {run.why_unfinished()}"
    if process := run.training_process:
        text = f" is being trained by {process}"
        if run.loaded_epoch is not None:
            text += f"; these are the weights of epoch {run.loaded_epoch}"
    say(stderr_console(quiet=quiet), f"note: {run.path}{text}")


def say(
    console: Console, text: str = "", style: str | None = None, *, folded: bool = False
) -> None:
    """Print a line without markup; ``folded`` wraps prose at a terminal's width."""
    console.print(
        printable_lines(text),
        style=style,
        markup=False,
        highlight=False,
        soft_wrap=not (folded and console.is_terminal),
    )


def say_next(console: Console, *commands: tuple[object, ...], heading: str = "Next:") -> None:
    """Print the next commands, quoted for a shell."""
    say(console, heading)
    for command in commands:
        say(console, f"  {shlex.join(map(str, command))}", style="cyan")


def print_metrics(
    records: Sequence[Mapping[str, Json]],
    grids: Sequence[tuple[str, Grid]],
    notes: Sequence[str],
    format: MetricsFormat,
) -> None:
    """Print evaluations.

    ``table`` and ``markdown`` print ``grids``, each below its heading, and ``notes``; ``csv`` and
    ``json`` print ``records``, one per metric and run.
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
    """Yield a function of the number done and the number in all, which moves a bar on stderr.
    Without a terminal it prints a line every half minute."""
    console = stderr_console(quiet=quiet)
    if not console.is_terminal:
        pace, tell = Pace(time.perf_counter(), 0), PlainProgress(partial(say, console))

        def show(done: int, total: int) -> None:
            nonlocal pace
            now = time.perf_counter()
            if not done:  # said after other work, such as writing an export
                pace = Pace(now, 0)
            tell(label, done / total, pace.seconds_to(total, now, done))

        yield show
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
    """Yield a function that shows the present step in a line on stderr. Without a terminal it
    prints at most one line every half minute."""
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
