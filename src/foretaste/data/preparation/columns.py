"""Columns by role: common spellings, and errors where none is found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from foretaste._util.formatting import shown
from foretaste.data.config import FileFormat, InputConfig, PairsConfig
from foretaste.errors import InputError, SettingError

# Compared without case and punctuation, so userId, user_id and "User ID" are one; best first.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "user_id": (
        "userid", "user", "uid", "customerid", "customer", "memberid", "visitorid", "accountid",
        "reviewerid", "profileid", "playerid", "clientid", "buyerid", "personid", "username",
    ),
    "item_id": (
        "itemid", "item", "iid", "movieid", "movie", "productid", "product", "asin", "parentasin",
        "articleid", "article", "bookid", "book", "isbn", "artistid", "artist", "trackid", "track",
        "songid", "song", "gameid", "game", "appid", "videoid", "newsid", "businessid", "sku",
        "listingid", "contentid", "documentid", "docid", "recipeid",
    ),
    "rating": (
        "rating", "ratings", "stars", "starrating", "score", "overall", "userrating", "bookrating",
    ),
    "time": (
        "timestamp", "time", "datetime", "date", "ts", "unixtime", "unixreviewtime", "eventtime",
        "eventtimestamp", "createdat", "ratedat", "purchasedat", "usertimerank", "timerank",
    ),
    "weight": (
        "weight", "count", "counts", "playcount", "plays", "listens", "listencount", "numplays",
        "playtime", "hours", "hoursplayed", "views", "viewcount", "clicks", "quantity", "qty",
        "frequency", "freq", "strength", "confidence",
    ),
    "title": ("title", "name", "itemtitle", "movietitle", "itemname", "productname", "booktitle"),
}  # fmt: skip

_STRENGTHS = frozenset(SPELLINGS["rating"] + SPELLINGS["weight"])
_KNOWN = frozenset(spelling for spellings in SPELLINGS.values() for spelling in spellings)

_REQUIRED = {"user_id": "user_column", "item_id": "item_column"}
_OPTIONS = {**_REQUIRED, "rating": "rating_column", "time": "time_column"}

# A number, or a date such as 2020-12-31: seldom the name of a column.
_VALUE = re.compile(r"[-+]?\d[-+.:\dTZ ]*")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The name of the column that plays each role; None where there is none."""

    user_id: str
    item_id: str
    rating: str | None
    time: str | None

    @property
    def time_is_rank(self) -> bool:
        """Whether times only order the interactions of one user."""
        return self.time is not None and _plain(self.time).endswith("rank")

    def used(self) -> dict[str, str]:
        """The roles that a column plays, with the column's name."""
        return {role: getattr(self, role) for role in _OPTIONS if getattr(self, role) is not None}


def find_roles(
    columns: Sequence[str], config: InputConfig, where: str, header: FileFormat | None
) -> Roles:
    """The columns to read of those found in the file ``where``.

    ``header`` says how the file is written, where its columns are the first line of a text.

    Raises InputError where users or items are not to be found, SettingError where one column
    is asked to be two things.
    """
    return Roles(**_find(_OPTIONS, columns, config, where, header))  # type: ignore[arg-type]


def find_pair(
    columns: Sequence[str], config: PairsConfig, where: str, header: FileFormat | None
) -> dict[str, str]:
    """As `find_roles`, the columns of users and items alone, by role."""
    return _find(_REQUIRED, columns, config, where, header)  # type: ignore[return-value]


def _find(
    options: Mapping[str, str],
    columns: Sequence[str],
    config: PairsConfig,
    where: str,
    header: FileFormat | None,
) -> dict[str, str | None]:
    """The column of each role that has an option here; None where there is none."""
    hint = _hint(columns, header, "user_id,item_id,rating,timestamp")
    named = {
        role: _named(columns, getattr(config, option), option, where, hint)
        for role, option in options.items()
    }
    # A column named for something else is not also taken for a rating or a time.
    free = [column for column in columns if column not in named.values()]
    found = {
        role: name or find_spelling(columns if role in _REQUIRED else free, role, where)
        for role, name in named.items()
    }
    for role, option in _REQUIRED.items():
        if found[role] is None:
            raise InputError(
                f"{_none_looks_like(columns, role, where)}. Name it with {_flag(option)}.{hint}"
            )
    by_column: dict[str, str] = {}
    for role, column in found.items():
        if column is not None and by_column.setdefault(column, role) != role:
            raise SettingError(
                f"{options[by_column[column]]} and {options[role]} are both {shown(column)}; "
                "they must be different columns"
            )
    return found


def check_columns(columns: Sequence[str], where: str, needed: Iterable[str], first: str) -> None:
    """Raise InputError where a file lacks a column that is read from the file ``first``."""
    for name in needed:
        if name not in columns:
            raise InputError(
                f"{where}: has no column {shown(name)}, which {first} has; "
                f"its columns are {_listed(columns)}"
            )


def refuse_times(columns: Sequence[str], where: str, first: str) -> None:
    """Raise InputError where a file has a column of times, and the file ``first`` has none: the
    split would not look at them."""
    name = find_spelling(columns, "time", where)
    if name is not None:
        raise InputError(
            f"{first}: has no column of times, and {where} has {shown(name)}; give files with the "
            "same columns, or a protocol that needs no times, such as held-out-users"
        )


def find_item_column(
    columns: Sequence[str], name: str | None, where: str, header: FileFormat | None
) -> str:
    """The item id column of a file about items, which may be spelled as in the interactions.

    ``header`` is as for `find_roles`. Raises InputError where the column is not to be found.
    """
    if name is not None and name in columns:
        return name
    # The options of columns are about interactions, so there is none to say which of two is meant.
    found = find_spelling(columns, "item_id", where, "rename one of them")
    if found is None and "id" in columns:
        return "id"
    if found is None:
        raise InputError(
            f"{_none_looks_like(columns, 'item_id', where)}. Rename the column of the ids to "
            f"item_id.{_hint(columns, header, 'item_id,title')}"
        )
    return found


def find_title(columns: Sequence[str], name: str | None, where: str) -> str | None:
    """The column of titles of a file about items, of those beside the id; None where there is none.

    Raises InputError where the one asked for is not there, or two are equally good.
    """
    return _named(columns, name, "title_column", where, "") or find_spelling(
        columns, "title", where, f"say which with {_flag('title_column')}"
    )


def no_title(columns: Sequence[str], where: str) -> str:
    """A note on a file about items in which no column beside the id looks like a title."""
    if not columns:
        return f"none, as {where} has no column but the ids"
    return (
        f"none, as no column of {where} looks like a title: {_listed(columns)} "
        "(--title-column names one)"
    )


def describe_unused(columns: Iterable[str], used: Collection[str]) -> dict[str, str]:
    """Notes on the columns that are not read; empty where every one is."""
    unused = list(dict.fromkeys(name for name in columns if name not in used))
    if not unused:
        return {}
    reason = ""
    if not _STRENGTHS.isdisjoint(map(_plain, unused)):
        reason = (
            "; ratings and counts are not weights, every row counts as one (--rating-column with "
            "--min-rating leaves low ones out)"
        )
    return {"not used": _listed(unused) + reason}


def find_spelling(
    columns: Sequence[str], role: str, where: str, advice: str | None = None
) -> str | None:
    """The column that is spelled most like ``role``, or None; InputError, with ``advice``, where
    two are equally good."""
    for spelling in SPELLINGS[role]:
        matches = [column for column in columns if _plain(column) == spelling]
        if len(matches) > 1:
            raise InputError(
                f"{where}: columns {' and '.join(map(shown, matches))} could both be {role}; "
                f"{advice or f'say which with {_flag(_OPTIONS[role])}'}"
            )
        if matches:
            return matches[0]
    return None


def _named(
    columns: Sequence[str], name: str | None, option: str, where: str, hint: str
) -> str | None:
    if name is not None and name not in columns:
        raise InputError(
            f"{where}: has no column {shown(name)}, asked for with {_flag(option)}; "
            f"its columns are {_listed(columns)}{hint and f'.{hint}'}"
        )
    return name


def _none_looks_like(columns: Sequence[str], role: str, where: str) -> str:
    return f"{where}: none of its columns looks like {role}: {_listed(columns)}"


def _hint(columns: Sequence[str], header: FileFormat | None, example: str) -> str:
    """A sentence on files without a header, where what was taken for one has a value in it, or
    nothing that is known."""
    if header is None:
        return ""
    if any(_VALUE.fullmatch(column) for column in columns):
        reason = "The first line looks like data"
    elif _KNOWN.isdisjoint(map(_plain, columns)):
        reason = "The first line may be data"
    else:
        return ""
    return (
        f" {reason}: where there is no line of column names, give them with "
        f"{_flag(f'{header.prefix}columns')}, in order, such as {example}."
    )


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')} ({option}=... in Python)"


def _listed(columns: Sequence[str]) -> str:
    first = ", ".join(map(shown, columns[:20]))
    return first if len(columns) <= 20 else f"{first} and {len(columns) - 20} more"


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
