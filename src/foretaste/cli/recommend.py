"""``foretaste recommend``: what next for known users, new ones, or everyone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretaste.cli.answers_output import (
    AnswersFormat,
    check_format,
    open_recommender,
    print_answers,
    say_written,
)
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, say, stderr_console
from foretaste.data.config import PairsConfig
from foretaste.errors import SettingError
from foretaste.recommend.ids import Unknown

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.recommend import Answer, Export, Recommender

_USERS_AT_ONCE = 4096

Ids = Annotated[tuple[str, ...], Parameter(show_default=False)]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Whom to recommend to: one of these."""

    user: Ids = ()
    """Ids of users the run knows: --user 7 11."""

    users_file: Path | None = None
    """File of user ids: Parquet, CSV or TSV (first column), or one id per line."""

    history: Ids = ()
    """Ids of the items that a new user has: --history 1 5."""

    histories_file: Path | None = None
    """File of new users and the items they have, a row for each: whatever foretaste prepare
    reads."""

    all: Annotated[bool, FLAG] = False
    """Every user the run knows, written to --output."""

    unknown: Unknown = "error"
    """For users that the run does not know: error stops before anything is answered, skip leaves
    them out, popular answers in popularity order. The last two say how many there were."""

    pairs: Annotated[PairsConfig | None, Parameter(name="*", group="Histories file")] = None

    def check(self) -> None:
        """SettingError unless exactly one way is given."""
        given = [
            name
            for name, value in (
                ("--user", self.user),
                ("--users-file", self.users_file),
                ("--history", self.history),
                ("--histories-file", self.histories_file),
                ("--all", self.all),
            )
            if value
        ]
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none of them"
            raise SettingError(
                "say whom to recommend to: --user ID, --users-file FILE, --history ITEM_ID, "
                f"--histories-file FILE or --all; {found}"
            )
        if self.pairs is not None and self.histories_file is None:
            raise SettingError("how a file is read can be said of --histories-file alone")
        if self.unknown != "error" and not (self.user or self.users_file):
            raise SettingError(
                f"--unknown {self.unknown} is for --user and --users-file: with {given[0]} there "
                "are no users that the run does not know; leave it out"
            )

    @cached_property
    def histories(self) -> dict[int | str, list[int | str]] | list[tuple[str, ...]] | None:
        """Those of new users; None where users are asked for that the run knows."""
        if self.histories_file is None:
            return [self.history] if self.history else None
        from foretaste.data import read_histories

        return read_histories(self.histories_file, self.pairs)

    @cached_property
    def user_ids(self) -> list[Any] | None:
        """Users that the run knows; None for all of them."""
        return None if self.all else _ids(self.user, self.users_file)


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What the lists hold."""

    k: int | None = None
    """Items per list; 10 unless given."""

    exclude: Ids = ()
    """Ids of items to leave out: --exclude 3 4."""

    exclude_file: Path | None = None
    """File of item ids to leave out."""

    candidates: Ids = ()
    """Ids of items that may be recommended, such as what is in stock: --candidates 3 4."""

    candidates_file: Path | None = None
    """File of item ids that may be recommended, such as what is in stock."""

    include_seen: Annotated[bool, FLAG] = False
    """Recommend also what the user has already."""

    def arguments(self) -> dict[str, Any]:
        """The same as `Recommender` takes it."""
        candidates = _ids(self.candidates, self.candidates_file)
        k = {} if self.k is None else {"k": self.k}
        return {
            **k,
            "exclude": _ids(self.exclude, self.exclude_file),
            "candidates": candidates or None,
            "include_seen": self.include_seen,
        }


def recommend(
    run: Path,
    /,
    *,
    asked: Annotated[Asked | None, Parameter(name="*", group="For whom")] = None,
    lists: Annotated[Lists | None, Parameter(name="*", group="Lists")] = None,
    output: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    format: AnswersFormat | None = None,
    spreadsheet_safe: Annotated[bool, FLAG] = False,
    device: str = "auto",
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Recommend items to known users, to new ones, or to everyone.

    Args:
        run: Directory of the run.
        output: File to write instead of printing: .parquet, .csv or .jsonl.
        overwrite: Replace the output if it is there already.
        format: How to print; as a table unless given.
        spreadsheet_safe: Put an apostrophe before text in CSV that a spreadsheet would compute.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        quiet: Print the lists and nothing else: no progress and no notes.
    """
    whom = asked or Asked()
    whom.check()
    check_format(format, spreadsheet_safe, output, overwrite=overwrite, all=whom.all)
    arguments = (lists or Lists()).arguments()
    # Files that are misspelled need not wait for torch.
    _ = whom.histories, whom.user_ids
    recommender = open_recommender(run, device, quiet=quiet)
    if output is None:
        notes = stderr_console(quiet=quiet)
        answers = _answers(recommender, whom, arguments, notes)
        print_answers(answers, format or "table", spreadsheet_safe=spreadsheet_safe, quiet=quiet)
        return
    with counting("Recommending", quiet=quiet) as tell:
        writing = {
            "overwrite": overwrite,
            "spreadsheet_safe": spreadsheet_safe,
            "progress": tell,
        }
        export = _export(recommender, output, whom, arguments | writing)
    if not quiet:
        say_written(export, "user")


def _answers(
    recommender: Recommender, asked: Asked, arguments: dict[str, Any], notes: Console
) -> Iterator[Answer]:
    histories = asked.histories
    if isinstance(histories, dict):
        for names in _parts([*histories]):
            some = {name: histories[name] for name in names}
            yield from recommender.recommend_for(some, **arguments)
    elif histories is not None:
        yield from recommender.recommend_for(histories, **arguments)
    else:
        from foretaste.recommend.ids import AskedUsers

        # Before anything is printed: an unknown user among the last would leave half an answer.
        users = AskedUsers.of(recommender.users, asked.user_ids or [], asked.unknown)
        for note in users.notes:
            say(notes, f"note: {note}")
        for some_ids in _parts(users.ids()):
            yield from recommender.recommend(some_ids, **arguments, unknown=asked.unknown)


def _export(
    recommender: Recommender, output: Path, asked: Asked, arguments: dict[str, Any]
) -> Export:
    histories = asked.histories
    if histories is None:
        return recommender.recommend_all(
            output, user_ids=asked.user_ids, unknown=asked.unknown, **arguments
        )
    return recommender.recommend_all_for(output, histories, **arguments)


def _parts(ids: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(ids), _USERS_AT_ONCE):
        yield ids[start : start + _USERS_AT_ONCE]


def _ids(given: tuple[str, ...], file: Path | None) -> list[Any]:
    """The ids given one by one and those of a file."""
    if file is None:
        return list(given)
    from foretaste.recommend import read_ids

    return [*given, *read_ids(file)]
