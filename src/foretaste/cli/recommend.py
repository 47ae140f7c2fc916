"""``foretaste recommend`` and ``similar``: items for users, and similar items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretaste.cli.answers import Answering, AnswerOptions
from foretaste.cli.arguments import FLAG, use_threads
from foretaste.cli.console import say, stderr_console
from foretaste.data.config import PairsConfig
from foretaste.errors import SettingError
from foretaste.recommend.config import Unknown

if TYPE_CHECKING:
    from foretaste.data.ids import Id, IdTable
    from foretaste.recommend import Export

_USERS_AT_ONCE = 4096

Words = Annotated[tuple[str, ...], Parameter(show_default=False)]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Users to recommend to, given in one of these ways."""

    user: Words = ()
    """Ids of users known to the run: --user 7 11."""

    users_file: str | None = None
    """File of user ids: Parquet, CSV or TSV with a column of ids, or one id per line; or a
    database."""

    history: Words = ()
    """Ids of the items that a new user has, the newest last: --history 1 5."""

    histories_file: str | None = None
    """File with one row per new user and item, in any format of foretaste prepare. A column of
    times orders the items, otherwise the rows do."""

    all: Annotated[bool, FLAG] = False
    """All users known to the run, written to --output."""

    unknown: Unknown = "error"
    """Users unknown to the run: error stops before the first answer, skip leaves them out, popular
    answers them in popularity order. The last two print their number."""

    def check(self) -> None:
        """Raise SettingError unless exactly one way is given."""
        ways = ("user", "users_file", "history", "histories_file", "all")
        given = [f"--{way.replace('_', '-')}" for way in ways if getattr(self, way)]
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none of them"
            raise SettingError(
                "name the users in one way: --user ID, --users-file FILE, --history ITEM_ID, "
                f"--histories-file FILE or --all; {found}"
            )

    def histories(
        self, files: PairsConfig | None
    ) -> dict[int | str, list[int | str]] | list[tuple[str, ...]] | None:
        """Histories of new users; None for users known to the run."""
        if self.histories_file is None:
            return [self.history] if self.history else None
        from foretaste.data import read_histories

        return read_histories(self.histories_file, files)

    def user_ids(self, users: IdTable, files: PairsConfig | None) -> list[Id] | None:
        """Ids of users in the run's table; None for all of them."""
        if self.all:
            return None
        from foretaste.recommend import read_ids

        if self.users_file is None:
            return [*self.user]
        return read_ids(self.users_file, users, files)


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Options of the lists."""

    k: int | None = None
    """Items per list; 10 by default."""

    exclude: Words = ()
    """Ids of items to leave out: --exclude 3 4, or a file, --exclude @sold.csv."""

    candidates: Words = ()
    """Ids of items that may be recommended, such as those in stock: --candidates 3 4, or a file,
    --candidates @stock.csv: Parquet, CSV or TSV with a column of ids, or one id per line."""

    include_seen: Annotated[bool, FLAG] = False
    """Also recommend items that the user has already."""

    rules: Words = ()
    """Names of rules; items must meet all of them: --rules in-stock wine."""

    where: str | None = None
    """SQL condition on the columns of items, which items must meet: --where "stock > 0"."""

    max_per: Words = ()
    """Most items of a list with the same value in a column: --max-per brand=2."""

    rules_file: Path | None = None
    """TOML file with the rules: in-stock = "stock > 0"."""

    items: str | None = None
    """File or database with columns of items, such as stock; by default the columns of the run."""

    reasons: Annotated[bool, FLAG] = False
    """Print below each item the nearest items of the history; in JSON as because."""

    def arguments(self, items: IdTable, files: PairsConfig | None) -> dict[str, Any]:
        """The arguments of `Recommender`, for a run that has these items."""
        k = {} if self.k is None else {"k": self.k}
        return {
            **k,
            "exclude": _with_files(self.exclude, items, files),
            "candidates": _with_files(self.candidates, items, files) or None,
            "include_seen": self.include_seen,
            "rules": self.rules,
            "where": self.where,
            "max_per": _limits(self.max_per),
        }


def recommend(
    run: Path,
    /,
    *,
    request: Annotated[Request | None, Parameter(name="*", group="For whom")] = None,
    lists: Annotated[Lists | None, Parameter(name="*", group="Lists")] = None,
    files: Annotated[PairsConfig | None, Parameter(name="*", group="Files of ids")] = None,
    threads: int | None = None,
    options: Answering = None,
) -> None:
    """Recommend items to known users, to new ones, or to all users.

    Args:
        run: Directory of the run.
        threads: CPU threads; by default those of PyTorch.
    """
    request, options = request or Request(), options or AnswerOptions()
    lists = lists or Lists()
    request.check()
    options.check(all=request.all)
    if lists.reasons and (options.output is not None or options.format == "csv"):
        raise SettingError(
            "--reasons are printed as a table or as JSON only, not written to a file"
        )

    from foretaste.runs import Run

    # A misspelled name is an error before torch is imported, which takes 1.1 s.
    found = Run.open(run)
    arguments = lists.arguments(found.items, files)
    # A comma separates no ids, since one may be in an id.
    if "," in "".join(request.history) and max(found.items.lookup(request.history)) < 0:
        raise SettingError(
            f"no item is called {request.history[0]!r}; --history takes ids with spaces between "
            "them: --history 1 5"
        )
    histories, user_ids = request.histories(files), request.user_ids(found.users, files)
    use_threads(threads)
    recommender = options.open(found)
    recommender.read_rules(lists.rules_file, lists.items, files)
    if options.output is not None:
        export: Callable[..., Export]
        if histories is None:
            export = partial(recommender.recommend_all, user_ids=user_ids, unknown=request.unknown)
        else:
            export = partial(recommender.recommend_all_for, histories=histories)
        options.write("Recommending", "user", partial(export, **arguments), all=request.all)
        return
    arguments["reasons"] = lists.reasons
    if isinstance(histories, dict):
        named = map(dict, _parts([*histories.items()]))
        options.print(
            answer for part in named for answer in recommender.recommend_for(part, **arguments)
        )
    elif histories is not None:
        options.print(recommender.recommend_for(histories, **arguments))
    else:
        from foretaste.recommend.inputs import AskedUsers

        # All users are looked up before the first is printed: an unknown one is then an error
        # without half of the output.
        users = AskedUsers.known(recommender.users, user_ids or [], request.unknown)
        for note in users.notes:
            say(stderr_console(quiet=options.quiet), f"note: {note}")
        arguments["unknown"] = request.unknown
        parts = _parts([*(users.ids or ())])
        options.print(
            answer for part in parts for answer in recommender.recommend(part, **arguments)
        )


def _parts(entries: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(entries), _USERS_AT_ONCE):
        yield entries[start : start + _USERS_AT_ONCE]


def _limits(texts: Sequence[str]) -> dict[str, int]:
    """The limits by column, from texts such as ``brand=2``."""
    limits: dict[str, int] = {}
    for text in texts:
        column, sign, number = text.rpartition("=")
        if not sign or not number.isdecimal() or column in limits:
            raise SettingError(
                f"--max-per takes a number for each column, brand=2 genre=1; got {text!r}"
            )
        limits[column] = int(number)
    return limits


def _with_files(ids: Sequence[str], items: IdTable, files: PairsConfig | None) -> list[Id]:
    """The given ids, with the ids of the file in place of each @FILE."""
    from foretaste.recommend import read_ids

    parts = (read_ids(one[1:], items, files) if one.startswith("@") else [one] for one in ids)
    return [*chain.from_iterable(parts)]


def similar(
    run: Path,
    /,
    *,
    item: Words = (),
    all: Annotated[bool, FLAG] = False,
    k: int | None = None,
    options: Answering = None,
) -> None:
    """List the most similar items of an item, or of all items of the catalogue.

    Args:
        run: Directory of the run.
        item: Ids of items: --item 1 5.
        all: All items of the catalogue, written to --output.
        k: Items per list; 10 by default.
    """
    options = options or AnswerOptions()
    if bool(item) == all:
        found = "both" if all else "neither"
        raise SettingError(f"name the items: --item ID, or --all for all of them; got {found}")
    options.check(all=all)

    from foretaste.runs import Run

    recommender = options.open(Run.open(run))
    arguments: dict[str, Any] = {} if k is None else {"k": k}
    if options.output is None:
        options.print(recommender.similar_items(item, **arguments))
        return
    export = partial(recommender.similar_all, item_ids=None if all else item, **arguments)
    options.write("Looking for similar items", "item", export, all=all)
