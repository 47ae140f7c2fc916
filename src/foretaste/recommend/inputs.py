"""Users, items and histories given by a caller: as ids in lists, mappings and files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import chain, compress
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.files import open_regular
from foretaste._util.formatting import did_you_mean, pluralize, short_repr
from foretaste._util.settings import given_or_default, validate
from foretaste.data.config import PairsConfig
from foretaste.data.histories import Histories
from foretaste.data.ids import Id, Ids, IdTable, as_ids, as_list, is_id
from foretaste.data.spellings import PAIR, find_spelling
from foretaste.errors import InputError, SettingError, UnknownIdError
from foretaste.recommend.config import Unknown

GivenHistories = Mapping[Id, Iterable[Id]] | Sequence[Iterable[Id]] | Sequence[Id]
"""Lists of item ids: a mapping by the users' names, a sequence without names, or one user's
list."""

NOTHING_KNOWN = "popularity order: nothing in the history was seen in training"
EMPTY_HISTORY = "popularity order: the history is empty"
UNKNOWN_USER = "popularity order: the run does not know this user"

_TREATMENT = {"skip": " and left out", "popular": ", answered in popularity order"}

_WAYS_OUT = (
    ". --unknown skip (unknown='skip' in Python) leaves unknown users out, and popular answers "
    "them in popularity order; --history (recommend_for) answers a new user from a history"
)

_NUM_NAMED = 5
_NUM_EXAMPLES = 3


def first_few(ids: Sequence[Id]) -> str:
    """Return the first distinct ids, and the number of the others, for a message."""
    distinct = [*dict.fromkeys(ids)]
    text = ", ".join(map(repr, distinct[:_NUM_NAMED]))
    more = len(distinct) - _NUM_NAMED
    return f"{text} and {more} more" if more > 0 else text


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedUsers:
    """Users to answer, each named by an id that the run knows, by a history, or by both."""

    kind: Literal["user", "history"] = "user"
    """``history`` for histories without names."""

    ids: Sequence[Id | None] | None
    """The id of each user in the answers; None for unnamed histories, and for users by their rows
    alone."""

    user_index: NDArray[np.int64]
    """The row of each user in the run's table; ``len(users)`` for an unknown user."""

    histories: Sequence[Sequence[Id] | None] | None = None
    """Given items of each user, in addition to the run's; None if none are given."""

    disliked: Sequence[Sequence[Id]] | None = None
    """Items that lists of each user leave out, in addition to the run's; None if none are given."""

    notes: tuple[str, ...] = ()
    """Remarks on the given ids."""

    def __len__(self) -> int:
        return len(self.user_index)

    def __getitem__(self, rows: slice) -> AskedUsers:
        """Return some of the users, without the notes."""
        return AskedUsers(
            kind=self.kind,
            ids=None if self.ids is None else self.ids[rows],
            user_index=self.user_index[rows],
            histories=None if self.histories is None else self.histories[rows],
            disliked=None if self.disliked is None else self.disliked[rows],
        )

    @classmethod
    def everyone(cls, users: IdTable) -> AskedUsers:
        """Return all users of a run."""
        return cls(ids=None, user_index=np.arange(len(users)))

    @classmethod
    def known(cls, users: IdTable, user_ids: Ids, unknown: Unknown) -> AskedUsers:
        """Return users by id; UnknownIdError for unknown users if ``unknown`` is ``error``."""
        validate("unknown", unknown, Unknown)
        ids = as_ids("user_ids", user_ids)
        if unknown == "error":
            try:
                row = lookup_all(users, ids)
            except UnknownIdError as error:
                raise UnknownIdError(f"{error}{_WAYS_OUT}", error.ids) from None
            return cls(ids=users.as_kept(ids), user_index=row)
        row, kept = users.lookup(ids), users.as_kept(ids)
        missing = [*compress(kept, row < 0)]
        notes = (_unknown(users, missing, ids, _TREATMENT[unknown]),) if missing else ()
        if unknown == "skip":
            return cls(ids=[*compress(kept, row >= 0)], user_index=row[row >= 0], notes=notes)
        return cls(ids=kept, user_index=np.where(row < 0, len(users), row), notes=notes)

    @classmethod
    def new(cls, users: IdTable, given: GivenHistories) -> AskedUsers:
        """Return users by their histories alone; names are not looked up in the run."""
        names, histories = given_histories(given)
        user_index = np.full(len(histories), len(users))
        kind: Literal["user", "history"] = "history" if names is None else "user"
        return cls(kind=kind, ids=names, user_index=user_index, histories=histories)

    @classmethod
    def mixed(
        cls,
        users: IdTable,
        ids: Sequence[Id | None],
        histories: Sequence[Sequence[Id] | None],
        disliked: Sequence[Sequence[Id]] = (),
    ) -> AskedUsers:
        """Return users by an id, a history or both, and what they disliked."""
        user_index = np.full(len(ids), len(users))
        given_row = [row for row, user_id in enumerate(ids) if user_id is not None]
        if given_row:
            found = users.lookup([user_id for user_id in ids if user_id is not None])
            user_index[given_row] = np.where(found < 0, len(users), found)
        is_by_id_alone = all(history is None for history in histories)
        return cls(
            ids=ids,
            user_index=user_index,
            histories=None if is_by_id_alone else histories,
            disliked=disliked if any(disliked) else None,
        )


def lookup_all(table: IdTable, ids: Sequence[Id]) -> NDArray[np.int64]:
    """Return the row of each id; UnknownIdError with the ids that are not in the table."""
    index = table.lookup(ids)
    if (index >= 0).all():
        return index
    unknown = list(compress(ids, index < 0))
    raise UnknownIdError(_unknown(table, unknown, ids), unknown)


def catalogue_index(
    items: IdTable,
    num_items: int,
    item_ids: Ids,
    consequence: str = "nothing is known of what they are similar to",
) -> NDArray[np.int64]:
    """Return indexes of items in the catalogue, which is the first ``num_items`` items.

    UnknownIdError, with the ``consequence``, for items that training never saw.
    """
    ids = as_ids("item_ids", item_ids)
    index = lookup_all(items, ids)
    unseen = list(compress(ids, index >= num_items))
    if unseen:
        raise UnknownIdError(
            f"{len(unseen)} of {len(ids)} items were never seen in training, so {consequence}: "
            f"{first_few(unseen)}",
            unseen,
        )
    return index


def _unknown(
    table: IdTable, unknown: Sequence[Id], requested: Sequence[Id], treatment: str = ""
) -> str:
    if len(requested) == 1:
        found = f"{table.kind} id {first_few(unknown)} is unknown to this run{treatment}"
    else:
        count = f"{len(unknown)} of {len(requested)}"
        named = first_few(unknown)
        found = f"{count} {table.kind} ids are unknown to this run{treatment}: {named}"
    return f"{found}; {examples(table)}"


def examples(table: IdTable) -> str:
    """Return a phrase with examples of ids: ``the run's item ids are integers such as 1, 2, 3``."""
    kind = "integers" if table.is_integer else "text"
    first = table.ids(np.arange(min(_NUM_EXAMPLES, len(table))))
    return f"the run's {table.kind} ids are {kind} such as {first_few(first)}"


def given_histories(given: GivenHistories) -> tuple[list[Id] | None, list[list[Id]]]:
    """Return the names, if any, and the histories of `GivenHistories`.

    SettingError for a table, for names that are not ids of one kind, and for a history that is no
    list.
    """
    if not isinstance(given, Iterable) or isinstance(given, str) or hasattr(given, "columns"):
        raise SettingError(
            'histories must be lists of item ids, [[1, 5], [7]] or {"anna": [1, 5]}, got one '
            f"of type {type(given).__name__}; foretaste.data.read_histories makes them of "
            "frames and files"
        )
    if not isinstance(given, Mapping):
        each = as_list(given)
        kinds = [kind for kind in set(map(type, each)) if not issubclass(kind, str)]
        if each and not any(issubclass(kind, Iterable) for kind in kinds):
            return None, [as_ids("histories", each, single=False)]
        return None, [as_ids("each history", ids, single=False) for ids in each]
    if len({isinstance(name, str) for name in given}) > 1 or not all(map(is_id, given)):
        raise SettingError(
            f"histories must be named all by integers or all by text, got {first_few([*given])}"
        )
    histories = [as_ids("each history", ids, single=False) for ids in given.values()]
    return as_ids("names of histories", list(given)), histories


def known_items(
    given: Sequence[Sequence[Id]],
    items: IdTable,
    num_items: int,
    has_others: Sequence[bool] | NDArray[np.bool_],
) -> tuple[Histories, list[list[str]]]:
    """Return the given histories' catalogue items, in order, and remarks on the items left out.

    The catalogue is the first ``num_items`` of ``items``. ``has_others`` is True for rows whose
    user has other known items.
    """
    lengths = np.array([len(ids) for ids in given], dtype=np.int64)
    row_index = np.repeat(np.arange(len(given)), lengths)
    # One look-up for the items of all histories: a batch of the service has up to 256.
    item_index = items.rows_of([*chain.from_iterable(given)])
    is_known = (item_index >= 0) & (item_index < num_items)
    known = Histories.from_pairs(
        row_index[is_known],
        item_index[is_known],
        num_users=len(given),
        num_items=num_items,
        position=np.flatnonzero(is_known),
    )
    is_ignored = np.split(~is_known, np.cumsum(lengths)[:-1])
    remarks = [
        _remarks(items, list(compress(ids, flags)), bool(more) or not flags.all())
        # `np.split` makes one part of no histories too.
        for ids, flags, more in zip(given, is_ignored[: len(given)], has_others, strict=True)
    ]
    return known, remarks


def _remarks(items: IdTable, ignored: Sequence[Id], has_others: bool) -> list[str]:
    """Return the remarks on a history with ignored items."""
    if not ignored:
        return []
    if has_others:
        number = pluralize(len(ignored), "item")
        return [f"{number} of the history ignored, never seen in training: {first_few(ignored)}"]
    return [f"{NOTHING_KNOWN}: {first_few(ignored)}; {examples(items)}"]


def read_ids(path: Path | str, table: IdTable, config: PairsConfig | None = None) -> list[Id]:
    """Return the ids in a file, in order, with repeats; ``table`` has the run's users or items.

    In ``.csv``, ``.tsv`` (also ``.gz``, ``.zst``) and ``.parquet`` files, and in the only table of
    a database (``sqlite:///shop.db``), the column is the one that ``config`` names, or one with a
    common name of such ids, or the only one; ``config`` also has the format of text. Any other file
    has one id per line. Blank lines, a byte order mark and Windows line ends are ignored. Raises
    InputError with file and line, and if the table has none of the ids.
    """
    from foretaste.data.sources.database import Database, is_database

    config = given_or_default("config", config, PairsConfig)
    ids: Sequence[Id]
    if is_database(str(path)):
        rows = Database.read(str(path), None)
        content = rows.table.rename_columns(list(rows.columns))
        name, ids = rows.name, _from_table(rows.name, content, table, config)
    else:
        name, ids = str(path), _from_file(validate("path", path, Path), table, config)
    if not ids:
        raise InputError(f"{name}: holds no ids")
    if (table.lookup(ids) < 0).all():
        raise InputError(
            f"{name}: the run knows none of its {pluralize(len(ids), f'{table.kind} id')}: "
            f"{first_few(ids)}; {examples(table)}"
        )
    return list(ids)


def _from_file(path: Path, table: IdTable, config: PairsConfig) -> Sequence[Id]:
    from foretaste.data.sources.signatures import refuse_by_signature
    from foretaste.data.sources.source import PARQUET_SUFFIXES

    # `os.path` and not `Path`: its functions raise nothing, even for odd or very long names.
    if not os.path.exists(path):  # noqa: PTH110
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"{path}: is a directory, a pipe or a device; name a file that holds ids")
    refuse_by_signature(path)
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(PARQUET_SUFFIXES):
        return _from_parquet(path, table, config)
    if name.endswith((".csv", ".tsv")):
        return _from_csv(path, table, config)
    return [line for line in _text(path, config.encoding).split("\n") if line.strip()]


def _column_of_ids(
    path: Path | str, columns: Sequence[str], table: IdTable, config: PairsConfig
) -> str:
    """Return the column with the ids of a table's users or items; InputError if there is none."""
    role, option = f"{table.kind}_id", f"{table.kind}_column"
    # An absent column is no error: the option may be meant for another file of the same command.
    if (asked := getattr(config, option)) in columns:
        return str(asked)
    found = find_spelling(columns, role, str(path), "rename one")
    if found is None and "id" in columns:
        return "id"
    is_of_others = any(find_spelling(columns, other, "") for other in PAIR if other != role)
    if found is None and len(columns) == 1 and not is_of_others:
        return columns[0]
    if found is None:
        raise InputError(
            f"{path}: none of its columns looks like {role}: {first_few(columns)}; name the one "
            f"with the ids with --{option.replace('_', '-')} (PairsConfig({option}=...) in "
            "Python), or leave no other in the file"
        )
    return found


def _from_csv(path: Path, table: IdTable, config: PairsConfig) -> list[str]:
    from foretaste.data.sources.text import TextFile

    format = config.file_format
    file = TextFile.open(path, format)
    if len(file.names) == 1:  # a single column shows no delimiter; quotes need one, so a comma
        file = TextFile.open(path, replace(format, delimiter=","))
    column = _column_of_ids(path, file.names, table, config)
    if not format.columns and (column.lstrip("-").isdecimal() or table.lookup([column])[0] >= 0):
        raise InputError(
            f"{path}, line 1: a header belongs here, found the id {short_repr(column)}; add a "
            "header, or name the file .txt with one id per line"
        )
    file.check_rows()
    position, ids = file.names.index(column), []
    for line, row in file.rows():
        if not row[position].strip():
            raise InputError(f"{path}, line {line}: the id is empty")
        ids.append(row[position])
    return ids


def _from_parquet(path: Path, table: IdTable, config: PairsConfig) -> list[Id]:
    import pyarrow.parquet as pq

    try:
        content = pq.read_table(path)
        _ = content.column_names  # raises ValueError for a name that is not UTF-8
    except (pa.ArrowException, ValueError, OSError) as error:
        raise InputError(f"{path}: is not readable Parquet: {error}") from error
    return _from_table(str(path), content, table, config)


def _from_table(name: str, content: pa.Table, table: IdTable, config: PairsConfig) -> list[Id]:
    column = _column_of_ids(name, content.column_names, table, config)
    try:
        return as_ids(f"column {short_repr(column)}", content[column])
    except SettingError as error:
        raise InputError(f"{name}: {error}") from error


def _text(path: Path, encoding: str) -> str:
    """Return the text of a file without byte order mark, with line feeds as line ends."""
    try:
        with_mark = "utf-8-sig" if encoding == "utf-8" else encoding
        with TextIOWrapper(open_regular(path), with_mark) as text:
            return text.read()
    except UnicodeError as error:
        raise InputError(
            f"{path}: is not {encoding.upper()} text: {error}; give its encoding with --encoding"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
