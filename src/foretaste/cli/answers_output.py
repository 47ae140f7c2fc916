"""Answers as the formats that ``recommend`` and ``similar`` print."""

from __future__ import annotations

import atexit
import gc
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretaste._util.formatting import counted
from foretaste._util.terminal import printable, printable_lines
from foretaste.cli.console import note_if_unfinished, say, stderr_console, stdout_console
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.recommend import Answer, Export, Recommender

AnswersFormat = Literal["table", "csv", "json"]


def check_format(
    format: AnswersFormat | None,
    spreadsheet_safe: bool,
    output: Path | None,
    *,
    overwrite: bool,
    all: bool,
) -> None:
    """SettingError for what is asked of a file where lists are printed, or the other way round, and
    for a file that cannot be written."""
    if output is not None:
        if format is not None:
            raise SettingError(
                "--format is about printing; of --output FILE the ending chooses the format"
            )
        from foretaste.recommend.output import Output

        Output(output, overwrite, spreadsheet_safe)
        return
    if all:
        raise SettingError("--all needs --output FILE: lists of everyone are not printed")
    if overwrite:
        raise SettingError("--overwrite needs --output FILE: without one nothing is written")
    if spreadsheet_safe and format != "csv":
        raise SettingError("--spreadsheet-safe is about CSV: add --format csv, or leave it out")


def open_recommender(run: Path, device: str, *, quiet: bool) -> Recommender:
    """What answers from a run; says so where its training is not finished."""
    from foretaste.runs import Run

    # A name that is misspelled need not wait for torch.
    opened = Run.open(run)

    from foretaste.recommend import Recommender

    recommender = Recommender.open(opened, device)
    note_if_unfinished(opened, quiet=quiet)
    return recommender


def print_answers(
    answers: Iterable[Answer], format: AnswersFormat, *, spreadsheet_safe: bool, quiet: bool
) -> None:
    """Print answers of one kind one after the other, as they come.

    ``csv`` has a row per item, reasons on stderr unless ``quiet``; ``json`` is one list with an
    object per answer.
    """
    atexit.register(_spare_last_search)
    if format == "csv":
        _print_csv(answers, spreadsheet_safe, quiet)
    elif format == "json":
        _print_json(answers)
    else:
        _print_table(answers)


def say_written(export: Export, asked: str) -> None:
    """Say what was written on stdout, and on stderr what to know of it; ``asked`` is the kind of
    what each list is for, "user" or "item"."""
    notes = stderr_console()
    for note in export.notes:
        say(notes, note)
    for count, note in (
        (export.num_short_lists, "shorter lists, for there is no more to show"),
        (export.num_popularity_lists, "popularity order, for training saw nothing of theirs"),
        (export.num_partial_histories, "part of the history ignored, never seen in training"),
    ):
        if count:
            say(notes, f"{note}: {counted(count, asked)}")
    rows, lists = counted(export.num_rows, "row"), counted(export.num_users, asked)
    say(stdout_console(), f"Wrote {rows} for {lists}: {export.path}")


def _spare_last_search() -> None:
    """As it ends, Python searches all objects once more: .2 s where PyTorch was imported.

    Not spared where DuckDB is there too, which takes what is not found for leaked, and says so.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def _print_table(answers: Iterable[Answer]) -> None:
    console = stdout_console()
    for number, answer in enumerate(answers):
        if number:
            say(console)
        say(console, str(answer))


def _print_csv(answers: Iterable[Answer], spreadsheet_safe: bool, quiet: bool) -> None:
    from foretaste.recommend import to_table
    from foretaste.recommend.output import csv_text

    notes = stderr_console(quiet=quiet)
    for number, answer in enumerate(answers):
        text = csv_text(
            to_table([answer], number), with_header=number == 0, spreadsheet_safe=spreadsheet_safe
        )
        # A file or another program gets the ids as they are.
        sys.stdout.write(printable_lines(text) if sys.stdout.isatty() else text)
        if answer.reason:
            about = number if answer.id is None else answer.id
            say(notes, f"{answer.column} {about}: {answer.reason}")


def _print_json(answers: Iterable[Answer]) -> None:
    separator = "["
    for answer in answers:
        print(separator)
        print(printable(json.dumps(_as_dict(answer), ensure_ascii=False)), end="")
        separator = ","
    print("\n]" if separator == "," else "[]")


def _as_dict(answer: Answer) -> dict[str, Any]:
    items = [
        {"item_id": item.item_id, "score": item.score, "title": item.title} for item in answer.items
    ]
    return {answer.column: answer.id, "items": items, "reason": answer.reason}
