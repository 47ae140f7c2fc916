"""Answers of ``recommend`` and ``similar``: their options, and printing or writing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from foretaste._util.documents import Json
from foretaste._util.formatting import pluralize
from foretaste._util.terminal import print_data, printable
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, note_if_unfinished, say, stderr_console, stdout_console
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.recommend import Answer, Export, Recommender
    from foretaste.recommend.export import Output, Progress
    from foretaste.runs import Run


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of every command that answers from a run."""

    output: Path | None = None
    """File to write in place of printing: .parquet, .csv or .jsonl."""

    overwrite: Annotated[bool, FLAG] = False
    """Replace the output if it exists."""

    format: Literal["table", "csv", "json"] | None = None
    """Format of the printed lists; a table by default."""

    spreadsheet_safe: Annotated[bool, FLAG] = False
    """Put an apostrophe before text in CSV that a spreadsheet would compute."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:N."""

    quiet: Annotated[bool, FLAG] = False
    """Print the lists and nothing else: no progress and no notes."""

    def check(self, *, all: bool) -> None:
        """Raise SettingError if options contradict each other, or the file cannot be written."""
        if self.output is not None:
            if self.format is not None:
                raise SettingError(
                    "--format is for printed lists; the ending of --output FILE chooses its format"
                )
            self.file()
        elif all:
            raise SettingError("--all needs --output FILE: lists of all users are not printed")

    def file(self) -> Output:
        """Return the file to write; SettingError if it cannot be written."""
        from foretaste.recommend.export import Output

        assert self.output is not None, "lists are printed without --output"
        return Output(self.output, self.overwrite, self.spreadsheet_safe)

    def open(self, run: Run) -> Recommender:
        """Return the recommender of a run; prints a note if the training is not finished."""
        from foretaste.recommend import Recommender

        recommender = Recommender.open(run, self.device)
        note_if_unfinished(run, quiet=self.quiet)
        return recommender

    def print(self, answers: Iterable[Answer]) -> None:
        """Print answers of one kind as they come.

        ``csv`` has one row per item, with reasons on stderr; ``json`` is one list with one object
        per answer.
        """
        if self.format == "csv":
            from foretaste.recommend import to_table
            from foretaste.recommend.export import csv_text

            notes, safe = stderr_console(quiet=self.quiet), self.spreadsheet_safe
            for number, answer in enumerate(answers):
                table = to_table([answer], number)
                text = csv_text(table, with_header=number == 0, spreadsheet_safe=safe)
                print_data(text, end="")
                if answer.reason:
                    about = number if answer.id is None else answer.id
                    say(notes, f"{answer.column} {about}: {answer.reason}")
        elif self.format == "json":
            separator = "["
            for answer in answers:
                items: list[dict[str, Json]] = list(map(asdict, answer.items))
                for item, nearest in zip(items, answer.because or (), strict=False):
                    item["because"] = list(map(asdict, nearest))
                entry = {answer.column: answer.id, "items": items, "reason": answer.reason}
                print_data(
                    f"{separator}\n{printable(json.dumps(entry, ensure_ascii=False))}", end=""
                )
                separator = ","
            print_data("\n]" if separator == "," else "[]")
        else:
            console = stdout_console()
            for number, answer in enumerate(answers):
                if number:
                    say(console)
                say(console, str(answer))

    def write(
        self,
        label: str,
        kind: str,
        export: Callable[[Output, Progress | None], Export],
        *,
        all: bool,
    ) -> None:
        """Write the output by ``export``; ``kind`` is "user" or "item", the subject of a list."""
        with counting(label, quiet=self.quiet) as progress:
            found = export(self.file(), progress)
        if self.quiet:
            return
        notes = stderr_console()
        for note in found.notes:
            say(notes, note)
        more = "with a relation to theirs" if kind == "item" else "to show"
        for count, note in (
            (found.num_short_lists, f"shorter lists, because there is no more {more}"),
            (
                found.num_popularity_lists,
                "popularity order, because training saw none of their items",
            ),
            (found.num_partial_histories, "part of the history ignored, never seen in training"),
        ):
            if count:
                say(notes, f"{note}: {pluralize(count, kind)}")
        rows, lists = pluralize(found.num_rows, "row"), pluralize(found.num_users, kind)
        say(stdout_console(), f"Wrote {rows} for {lists}: {found.path}")
        if all:
            say(notes, found.speed(kind))


Answering = Annotated[AnswerOptions | None, Parameter(name="*")]
