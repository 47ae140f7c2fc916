"""Rules: conditions on the columns of items, such as ``stock > 0``, by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.formatting import did_you_mean, shown
from foretaste._util.settings import checked
from foretaste.data.config import PairsConfig
from foretaste.data.ids import IdTable
from foretaste.errors import InputError, SettingError
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import examples, named
from foretaste.recommend.item_filter import Condition, ItemFilter
from foretaste.recommend.max_per import Limit, MaxPer

_TYPES = {
    # A cast alone would read 1_000 as 1000, and round 77.5 to 78.
    "BIGINT": "TRY_CAST(CASE WHEN regexp_full_match({text}, '-?(0|[1-9][0-9]*)') THEN {text} END "
    "AS BIGINT)",
    # A cast would make numbers of 05 and 007, which are codes.
    "DOUBLE": "TRY_CAST(CASE WHEN NOT regexp_matches({text}, '^[-+]?0[0-9]') THEN {text} END AS "
    "DOUBLE)",
    "BOOLEAN": "CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END",
    # An offset is dropped: 12:00+05:00 reads as 12:00.
    "TIMESTAMP": "TRY_CAST({text} AS TIMESTAMP)",
}
"""SQL that casts text, by type; a column gets the first type that fits all its values."""

# Texts that stand for no value. NaN is the largest number in SQL, so it would meet stock > 0.
_MISSING = ("", "nan", "NaN")


class ItemRules:
    """The columns of a run's items, and named conditions on them; immutable."""

    def __init__(
        self,
        items: IdTable,
        num_items: int,
        conditions: Mapping[str, str] | None = None,
        described: pa.Table | None = None,
    ) -> None:
        """``conditions`` are SQL by name, on the columns of the first ``num_items`` of ``items``,
        or of the same rows of ``described``.

        SettingError for SQL that is no condition.
        """
        # All are evaluated now: an answer then only reads a mask, and a wrong rule fails early.
        self._ids = items
        self._items = (items.table if described is None else described).slice(0, num_items)
        self._groups: dict[str, NDArray[np.int64]] = {}
        self._masks = {
            name: self._evaluated(f"rule {name}", sql) for name, sql in (conditions or {}).items()
        }

    @classmethod
    def read(
        cls,
        items: IdTable,
        num_items: int,
        rules_file: Path | str | None,
        described: Any,
        files: PairsConfig | None = None,
    ) -> ItemRules:
        """The rules of a file, on the columns of ``items`` and of ``described``. That is a file or
        frame of items, whose columns replace those of the same name.

        Raises InputError if one of them cannot be read, and SettingError as the class does.
        """
        conditions = None
        if rules_file is not None:
            conditions = _conditions(checked("rules_file", rules_file, Path))
        columns = None
        if described is not None:
            columns = _described(items, num_items, described, files)
        return cls(items, num_items, conditions, columns)

    @property
    def names(self) -> list[str]:
        """The names of the rules."""
        return [*self._masks]

    def missing(self, request: ListRequest) -> tuple[str, str] | None:
        """The first field of a request that names what the items lack, and a message; None if all
        its rules and columns are here."""
        for name in request.rules:
            if name not in self._masks:
                known = f"those read are {named(self.names)}" if self._masks else "none were read"
                return "rules", f"no rule is called {shown(name)}; {known}"
        columns = self._items.column_names[1:]
        for name, _ in request.max_per:
            if name not in columns:
                have = named(columns) or "none but their ids"
                message = f"{shown(name)}, which is no column of the items; they have {have}"
                return "max_per", f"max_per has {message}"
        return None

    def filter(self, request: ListRequest) -> ItemFilter:
        """The items that the lists of a request may hold, and the limits on them.

        SettingError for a rule or column that is `missing`, and for SQL that is no condition.
        """
        if found := self.missing(request):
            raise SettingError(found[1])
        words, masks = [*request.rules], [self._masks[name] for name in request.rules]
        if request.where is not None:
            words.append(request.where)
            masks.append(self._evaluated("where", request.where))
        condition = None
        if masks:
            condition = Condition(" and ".join(words), np.logical_and.reduce(masks))
        limits = [Limit(name, most, self._group(name)) for name, most in request.max_per]
        max_per = MaxPer(limits) if limits else None
        return ItemFilter.of(self._ids, len(self._items), request, condition, max_per)

    def _group(self, column: str) -> NDArray[np.int64]:
        """Number of each item's value in a column; -1 for an item without a value."""
        if column not in self._groups:
            values = self._texts.column(column).combine_chunks().dictionary_encode()
            self._groups[column] = np.asarray(values.indices.fill_null(-1)).astype(np.int64)
        return self._groups[column]

    @cached_property
    def _texts(self) -> pa.Table:
        """The ids, and all other columns as text, with NULL for missing values."""
        import pyarrow.compute as pc  # here, as answers without rules need not wait for it

        missing = pa.array(_MISSING)
        item_id, *others = self._items.columns
        texts = [pc.cast(column, pa.string()) for column in others]
        texts = [pc.if_else(pc.is_in(text, missing), None, text) for text in texts]
        return pa.table([item_id, *texts], names=["item_id", *self._items.column_names[1:]])

    @cached_property
    def _database(self) -> Any:
        """A connection to a database with the view ``items``, whose columns have types."""
        import duckdb

        from foretaste.data.sources.source import identifier

        # A condition is SQL of whoever may call: it reaches no file, network or Python object.
        database = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "enable_external_access": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            },
        )
        index = pa.array(np.arange(len(self._texts)))
        database.register("given", self._texts.append_column("item_index", index))
        database.execute("CREATE TABLE texts AS SELECT * FROM given")
        database.unregister("given")
        selected = ["item_index", "item_id"]
        for name in map(identifier, self._texts.column_names[1:]):
            casts = {kind: sql.format(text=name) for kind, sql in _TYPES.items()} | {"": name}
            counts = ", ".join(f"count({sql})" for sql in casts.values())
            found = database.execute(f"SELECT {counts} FROM texts").fetchone()
            # A column without values is NULL, which compares with numbers and with text.
            # The last count is of the text itself: the first type with as many values fits all of
            # them.
            fitting = [*casts.values()][found.index(found[-1])] if found[-1] else "NULL"
            selected.append(f"{fitting} AS {name}")
        database.execute(f"CREATE VIEW items AS SELECT {', '.join(selected)} FROM texts")
        return database

    def _evaluated(self, what: str, condition: str) -> NDArray[np.bool_]:
        """True for items that meet a condition, [num_items]; SettingError if it is no condition."""
        import duckdb

        database = self._database.cursor()
        what = f"{what}, {shown(condition)}"
        try:
            # On a line of its own, as a -- comment may end the condition.
            query = f"SELECT item_index, (\n{condition}\n) AS is_met FROM items"
            result = database.execute(query)
            kinds = [str(kind) for _, kind, *_ in result.description]
            found = result.fetchnumpy()
        except duckdb.Error as error:
            reason = str(error).strip().split("\n", 1)[0]
            if missing := re.search(r'column "(.+?)" not found', reason):
                reason = f"there is no column {missing[1]}"
            raise SettingError(f"{what}: {reason}; {self._columns()}") from None
        index = found.get("item_index", ())
        if len(kinds) != 2 or kinds[1] != "BOOLEAN" or len(index) != len(self._texts):
            raise SettingError(f"{what}: is no condition, true or false for each item")
        is_met = np.zeros(len(index), dtype=bool)
        # By index, as SQL promises no order of rows. NULL is false: an item without a value meets
        # nothing.
        is_met[index] = np.ma.filled(found["is_met"], False)
        return is_met

    def _columns(self) -> str:
        """A phrase with the columns of the items and their types."""
        described = self._database.cursor().execute("DESCRIBE items").fetchall()
        columns = [f"{name} {kind}" for name, kind, *_ in described if name != "item_index"]
        return f"the items have {', '.join(columns)}"


def _conditions(path: Path) -> dict[str, str]:
    """The rules of a TOML file: SQL by name."""
    try:
        rules = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        meant = did_you_mean(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be read as TOML: {reason}{meant}") from None
    for name, condition in rules.items():
        if not isinstance(condition, str):
            raise InputError(
                f"{path}: {name} is {shown(condition)}; write a condition in quotes, such as "
                f'{name} = "stock > 0"'
            )
    return rules


def _described(
    items: IdTable, num_items: int, described: Any, files: PairsConfig | None
) -> pa.Table:
    """The items with the columns of a file or frame added."""
    from foretaste.data.preparation import read_items

    table = read_items(described, files)
    ids = IdTable(kind="item", table=table.rename_columns(["id", *table.column_names[1:]]))
    place = ids.lookup(items.ids())
    place[num_items:] = -1
    if (place < 0).all():
        source = described if isinstance(described, str | Path) else "the items table"
        theirs = f"its ids are such as {named(ids.ids())}" if len(ids) else "it has no rows"
        raise InputError(f"{source}: describes no item of the run: {theirs}; {examples(items)}")
    rows = table.take(pa.array(place, mask=place < 0))
    # Names are compared without case, as in SQL.
    replaced = {name.lower() for name in rows.column_names}
    kept = [name for name in items.table.column_names if name.lower() not in replaced]
    joined = items.table.select(kept)
    for name in rows.column_names[1:]:
        joined = joined.append_column(name, rows.column(name))
    return joined
