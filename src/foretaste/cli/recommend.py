"""``foretaste recommend`` and ``similar``: items for users, and similar items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from foretaste.cli.answers import Answering, AnswerOptions
from foretaste.cli.arguments import FLAG, use_threads
from foretaste.cli.console import say, stderr_console
from foretaste.data.config import PairsConfig
from foretaste.errors import SettingError
from foretaste.recommend.config import ListRequest, Unknown

if TYPE_CHECKING:
    from foretaste.data.ids import Id, IdTable
    from foretaste.recommend.inputs import AskedUsers
    from foretaste.runs import Run

USERS_AT_ONCE = 4096

# In the order of the help page.
FOR_WHOM = Group("For whom", sort_key=0)
LISTS = Group("Lists", sort_key=1)
MORE = Group("More settings", sort_key=2)
FILES_OF_IDS = Group("Files of ids", sort_key=3)

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

    def look_up_users(self, run: Run, files: PairsConfig | None) -> AskedUsers:
        """Return the users to answer, looked up in the run."""
        from foretaste.recommend.inputs import AskedUsers, read_ids

        if self.all:
            return AskedUsers.everyone(run.users)
        if self.histories_file is not None:
            from foretaste.data import read_histories

            return AskedUsers.new(run.users, read_histories(self.histories_file, files))
        if self.history:
            # A comma separates no ids, since one may be in an id.
            if "," in "".join(self.history) and max(run.items.lookup(self.history)) < 0:
                raise SettingError(
                    f"no item is called {self.history[0]!r}; --history takes ids with spaces "
                    "between them: --history 1 5"
                )
            return AskedUsers.new(run.users, [self.history])
        ids: Sequence[Id] = self.user
        if self.users_file is not None:
            ids = read_ids(self.users_file, run.users, files)
        return AskedUsers.known(run.users, ids, self.unknown)


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
    """Also recommend items that the user has already or disliked."""

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

    def request(self, items: IdTable, files: PairsConfig | None) -> ListRequest:
        """Return the request, for a run that has these items."""
        return ListRequest.of(
            ListRequest.k if self.k is None else self.k,
            exclude=_read_id_files(self.exclude, items, files),
            candidates=_read_id_files(self.candidates, items, files) or None,
            include_seen=self.include_seen,
            rules=self.rules,
            where=self.where,
            max_per=_limits(self.max_per),
            reasons=self.reasons,
        )


def recommend(
    run: Path,
    /,
    *,
    request: Annotated[Request | None, Parameter(name="*", group=FOR_WHOM)] = None,
    lists: Annotated[Lists | None, Parameter(name="*", group=LISTS)] = None,
    files: Annotated[PairsConfig | None, Parameter(name="*", group=FILES_OF_IDS)] = None,
    threads: Annotated[int | None, Parameter(group=MORE)] = None,
    options: Annotated[Answering, Parameter(group=MORE)] = None,
) -> None:
    """Recommend items to known users, to new ones, or to all users.

    Args:
        run: Directory of the run.
        threads: CPU threads; by default PyTorch's number.
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

    # A misspelled name is an error before torch is imported, which takes 1.1 s. All users are
    # looked up before the first is printed: an unknown one ends no output in its middle.
    found = Run.open(run)
    asked, users = lists.request(found.items, files), request.look_up_users(found, files)
    use_threads(threads)
    recommender = options.open(found)
    recommender.read_rules(lists.rules_file, lists.items, files)
    if options.output is not None:
        write = partial(recommender.write, users, asked)
        options.write("Recommending", "user", write, all=request.all)
        return
    for note in users.notes:
        say(stderr_console(quiet=options.quiet), f"note: {note}")
    starts = range(0, len(users), USERS_AT_ONCE)
    parts = (users[start : start + USERS_AT_ONCE] for start in starts)
    options.print(answer for part in parts for answer in recommender.answers(part, asked))


def _limits(texts: Sequence[str]) -> dict[str, int]:
    """Return the limits by column, from texts such as ``brand=2``."""
    limits: dict[str, int] = {}
    for text in texts:
        column, sign, number = text.rpartition("=")
        if not sign or not number.isdecimal() or column in limits:
            raise SettingError(
                f"--max-per takes a number for each column, brand=2 genre=1; got {text!r}"
            )
        limits[column] = int(number)
    return limits


def _read_id_files(ids: Sequence[str], items: IdTable, files: PairsConfig | None) -> list[Id]:
    """Return the given ids in the type of the run's, with a file's ids in place of each @FILE. An
    id of the run may begin with @ too."""
    from foretaste.recommend import read_ids

    parts = (
        read_ids(one[1:], items, files)
        if one.startswith("@") and items.lookup([one])[0] < 0
        else [one]
        for one in ids
    )
    return items.as_kept(chain.from_iterable(parts))


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
    k = ListRequest.k if k is None else k
    if options.output is None:
        options.print(recommender.similar_items(item, k))
        return
    write = partial(recommender.write_similar, None if all else item, k)
    options.write("Looking for similar items", "item", write, all=all)
