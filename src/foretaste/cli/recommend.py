"""``foretaste recommend``: what next for known users, new ones, or everyone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretaste.cli.answers_output import AnswersFormat, print_answers
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, note_if_unfinished, say, stderr_console, stdout_console
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.recommend import Answer, Recommender

_USERS_AT_ONCE = 4096

Ids = Annotated[tuple[str, ...], Parameter(show_default=False)]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Whom to recommend to: one of these."""

    user: Ids = ()
    """Id of a user the run knows; give it again for more."""

    users_file: Path | None = None
    """File of user ids: Parquet, CSV or TSV (first column), or one id per line."""

    history: Ids = ()
    """Id of an item that a new user has; give it again for more."""

    all: Annotated[bool, FLAG] = False
    """Every user the run knows, written to --output."""

    def check(self) -> None:
        """SettingError unless exactly one way is given."""
        given = [
            name
            for name, value in (
                ("--user", self.user),
                ("--users-file", self.users_file),
                ("--history", self.history),
                ("--all", self.all),
            )
            if value
        ]
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none of them"
            raise SettingError(
                "say whom to recommend to: --user ID, --users-file FILE, --history ITEM_ID or "
                f"--all; {found}"
            )


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What the lists hold."""

    k: int | None = None
    """Items per list; 10 unless given."""

    exclude: Ids = ()
    """Id of an item to leave out; give it again for more."""

    exclude_file: Path | None = None
    """File of item ids to leave out."""

    candidates: Ids = ()
    """Id of an item that may be recommended, such as what is in stock; give it again for more."""

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
    format: AnswersFormat = "table",
    device: str = "auto",
) -> None:
    """Recommend items to known users, to new ones, or to everyone.

    Args:
        run: Directory of the run.
        output: File for --all: .parquet, .csv or .jsonl.
        overwrite: Replace the output if it is there already.
        format: How to print.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
    """
    whom = asked or Asked()
    whom.check()
    if whom.all != (output is not None):
        raise SettingError("--all and --output FILE go together; print with --format otherwise")
    from foretaste.recommend import Recommender

    arguments = (lists or Lists()).arguments()
    recommender = Recommender.open(run, device)
    note_if_unfinished(recommender.run)
    if output is not None:
        _write_all(recommender, output, overwrite, arguments)
    else:
        print_answers(_answers(recommender, whom, arguments), format)


def _answers(recommender: Recommender, asked: Asked, arguments: dict[str, Any]) -> Iterator[Answer]:
    if asked.history:
        yield from recommender.recommend_for([asked.history], **arguments)
        return
    from foretaste.recommend.ids import lookup_all

    user_ids = _ids(asked.user, asked.users_file)
    # Before anything is printed: an unknown user among the last would leave half an answer.
    lookup_all(recommender.run.users, user_ids)
    for start in range(0, len(user_ids), _USERS_AT_ONCE):
        yield from recommender.recommend(user_ids[start : start + _USERS_AT_ONCE], **arguments)


def _write_all(
    recommender: Recommender, output: Path, overwrite: bool, arguments: dict[str, Any]
) -> None:
    with counting("Recommending") as tell:
        export = recommender.recommend_all(output, overwrite=overwrite, progress=tell, **arguments)
    notes = stderr_console()
    for note in export.notes:
        say(notes, note)
    if export.num_short_lists:
        say(notes, f"{export.num_short_lists:,} users have shorter lists: there is no more to show")
    if export.num_popularity_lists:
        say(
            notes,
            f"{export.num_popularity_lists:,} users are answered in popularity order: "
            "training saw nothing of theirs",
        )
    users = "1 user" if export.num_users == 1 else f"{export.num_users:,} users"
    say(stdout_console(), f"Wrote {export.num_rows:,} rows for {users}: {export.path}")


def _ids(given: tuple[str, ...], file: Path | None) -> list[Any]:
    """The ids given one by one and those of a file."""
    if file is None:
        return list(given)
    from foretaste.recommend import read_ids

    return [*given, *read_ids(file)]
