"""Features of items: columns of the items file, values that items share, and new items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretaste._util.formatting import pluralize, short_repr
from foretaste.data.preparation import steps
from foretaste.data.preparation.casts import EMPTY_IDS, Kind, cast, literals
from foretaste.data.preparation.columns import (
    ItemDescriptions,
    check_columns,
    has_no_column,
    respell,
    spellings_of_filtered,
)
from foretaste.data.sources.arrow import Frame
from foretaste.data.sources.database import Database
from foretaste.data.sources.source import Column, Source, Storage, identifier, sql_literal
from foretaste.data.sources.text import TextFile
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_CATEGORIES: tuple[Storage, ...] = ("text", "integer", "real", "decimal", "uuid", "truth")
_BLANKS = "concat(' ', chr(9), chr(10), chr(13), chr(160))"
FEATURE = "feature "
"""Subject of the note on a column of features, before its name."""

_MOST_NAMED = 3
"""Most values in the note on values left out."""


class FeaturesError(InputError, SettingError):
    """The columns of features that are asked for do not fit the file of items, or it is missing."""


@dataclass(frozen=True, kw_only=True)
class _Feature:
    """A column of features."""

    name: str

    mark: str
    """The sign between several values of a text; empty without a sign."""

    def rows(self, engine: Engine, source: Source, item_id: str) -> tuple[str, Column]:
        """Return SQL after FROM for ``described_id`` and single values, and the values' column."""
        column = source.columns[self.name]
        values, value = column.values, column.sql
        if self.mark:
            values = engine.sql.split.format(text=value, mark=sql_literal(self.mark))
        if values:
            value = engine.sql.each.format(values=values)
        rows = f"(SELECT {item_id} AS described_id, {value} AS element FROM {source.relation})"
        return rows, replace(column, sql="element", storage=column.element or column.storage)


class ItemFeatures:
    """The columns of features in a file of items.

    Raises FeaturesError for a column that the file does not have, whose type is no category, that
    is named twice, or that has the item ids.
    """

    def __init__(self, items: ItemDescriptions, asked: Sequence[str]) -> None:
        self._items = items
        self._source = source = items.source
        self._features = [_find_feature(source, text) for text in asked]
        names = [feature.name for feature in self._features]
        for feature in self._features:
            name, column = feature.name, source.columns[feature.name]
            if name == items.key or names.count(name) > 1:
                problem = "has the item ids" if name == items.key else "is named twice"
                raise FeaturesError(
                    f"features names {short_repr(name)}, which {problem}; leave it out"
                )
            if feature.mark and column.storage != "text":
                raise FeaturesError(
                    f"features names {short_repr(name + feature.mark)}, and a sign splits text "
                    f"alone: column {short_repr(name)} of {source.name} is of type "
                    f"{column.type_name:.200}; name it {short_repr(name)}"
                )
            if (column.element or column.storage) not in _CATEGORIES:
                raise FeaturesError(
                    f"{source.name}: column {short_repr(name)} is of type {column.type_name:.200}, "
                    "and features are text, integers, true or false, or lists of these; leave it "
                    "out, or make text of it first"
                )

    def read(self, engine: Engine) -> None:
        """Make table ``values_of_items`` of the values of each item, by ``described_id``. The
        descriptions must have been read before. Raises FeaturesError for a column of real
        numbers."""
        source = self._items.registered
        item_id = cast(engine.sql, source.columns[self._items.key], "text")
        selects = []
        for number, feature in enumerate(self._features):
            rows, column = feature.rows(engine, source, item_id)
            column = self._category(engine, rows, column, feature.name)
            # Text as it stands: a value, unlike an id, may have any length.
            is_text = column.storage == "text"
            value = column.sql if is_text else cast(engine.sql, column, "text")
            selects.append(
                f"SELECT described_id, {number} AS column_number, {value} AS value FROM {rows}"
            )
        rows = "\nUNION ALL ".join(selects)
        engine.make(
            "values_of_items",
            "SELECT DISTINCT described_id, column_number, value FROM ("
            f"SELECT described_id, column_number, trim(BOTH {_BLANKS} FROM value) AS value "
            f"FROM ({rows})) WHERE described_id IS NOT NULL "
            f"AND value NOT IN ({literals(EMPTY_IDS)})",
        )

    def _category(self, engine: Engine, rows: str, column: Column, name: str) -> Column:
        """Return the column whose text is the category: ``column``, or its numbers if a file
        without types has numbers such as 3.0. Pandas writes integers like that if some are
        missing."""
        is_real = column.storage in ("real", "decimal")
        value = column.sql
        if isinstance(self._source, TextFile | Database):
            real = cast(engine.sql, column, "real")
            is_integer = engine.sql.matches.format(text=value, pattern=" *[-+]?[0-9]+ *")
            num_values, num_real, num_integer = engine.row(
                f"SELECT count(CASE WHEN trim({value}) <> '' THEN 1 END), count({real}), "
                f"count(CASE WHEN {is_integer} THEN 1 END) FROM {rows}"
            )
            # All values are numbers, and at least one is not spelled as an integer.
            is_real = num_values == num_real > num_integer
            if is_real:
                column = replace(column, sql=f"({real})", storage="real", type_name="double")
        if not is_real:
            return column
        missing = f"{column.sql} IS NULL" + (
            f" OR isnan({column.sql})" if column.storage == "real" else ""
        )
        num_broken, example = engine.row(
            f"SELECT count(*), min(CAST({column.sql} AS STRING)) FROM {rows} "
            f"WHERE NOT ({missing}) AND {cast(engine.sql, column, 'text')} IS NULL"
        )
        if num_broken:
            raise FeaturesError(
                f"{self._source.name}: column {short_repr(name)} has real numbers such as "
                f"{example} ({pluralize(num_broken, 'row')} like it), and features are categories; "
                f"{self._bands(name)}"
            )
        return column

    def _bands(self, name: str) -> str:
        """Return the advice to make a category of a column of real numbers."""
        if type(self._source) is Frame:
            return (
                f"frame['{name}_band'] = pandas.qcut(frame[{name!r}], 10, labels=False) makes one"
            )
        column, band = identifier(name), identifier(f"{name}_band")
        table = "TABLE" if isinstance(self._source, Database) else sql_literal(self._source.name)
        return (
            f"this makes one: SELECT *, ntile(10) OVER (ORDER BY {column}) AS {band} FROM {table}"
        )

    def number(
        self,
        engine: Engine,
        kind: Kind,
        respelled: Sequence[tuple[str, str]],
        empty_values: Sequence[str],
    ) -> dict[str, str]:
        """Make ``items`` again, with new items and in the order of the lists, and
        ``feature_values``; returns notes on columns and new items.

        ``kind`` is the kind of the item ids, ``respelled`` the result of `match_forms`, and
        ``empty_values`` are no ids. Table ``known_items`` has the ids of the source, ids of
        filtered rows too. Raises FeaturesError for a column without a value that two items share.
        """
        if respelled:
            respell(engine, "values_of_items", ("column_number", "value"), respelled)
        new_id = cast(
            engine.sql, Column(sql="described_id", storage="text", type_name="text"), kind
        )
        filtered = spellings_of_filtered(engine)
        others = literals(["", *empty_values, *(spelled for _, spelled in respelled), *filtered])
        engine.make("new_ids", steps.NEW_IDS.format(new_id=new_id, others=others))
        engine.make("listable", steps.LISTABLE)
        engine.make("sizes_of_values", steps.SIZES_OF_VALUES)
        most = engine.count("listable") // 2
        engine.make("feature_values", steps.FEATURE_VALUES.format(most=most))
        engine.drop("items")
        engine.make("items", steps.LISTED_ITEMS)
        return self._describe(engine, most) | self._describe_new(engine)

    def _describe(self, engine: Engine, most: int) -> dict[str, str]:
        """Return a note on each column; FeaturesError if no two items share a column's value."""
        sizes = {number: found for number, *found in engine.run(steps.SIZES_OF_COLUMNS)}
        num_with: dict[int, int] = dict(engine.run(steps.ITEMS_WITH_VALUE))
        frequent: dict[int, list[str]] = {}
        too_many = f"SELECT column_number, value FROM sizes_of_values WHERE size > {most}"
        for number, value in sorted(engine.run(too_many)):
            frequent.setdefault(number, []).append(short_repr(value))
        num_items = engine.count("items")
        notes: dict[str, str] = {}
        for number, feature in enumerate(self._features):
            num_values, num_shared = sizes.get(number, (0, 0))
            if not num_shared:
                raise FeaturesError(
                    f"{self._source.name}: no two items share a value of column "
                    f"{short_repr(feature.name)}, and a category needs shared values; leave it out "
                    "of features"
                )
            num_without = num_items - num_with.get(number, 0)
            note = (
                f"{pluralize(num_values, 'value')}, {num_shared:,} of at least two items; "
                f"{pluralize(num_without, 'item')} without one"
            )
            if names := frequent.get(number):
                named = ", ".join(names[:_MOST_NAMED]) + ", ..." * (len(names) > _MOST_NAMED)
                note += f"; left out because more than half of the items have it: {named}"
            notes[FEATURE + short_repr(feature.name)] = note
        if not engine.count("feature_values"):
            raise FeaturesError(
                f"{self._source.name}: every value of features belongs to more than half of the "
                "items, or to one item alone; name other columns"
            )
        return notes

    def _describe_new(self, engine: Engine) -> dict[str, str]:
        """Return notes on the file's items that no row of the source has."""
        num_new, num_listed, num_misfits, misfit = engine.row(steps.COUNTS_OF_NEW)
        if not num_new:
            return {}
        file = Path(self._source.name).name
        verbs = ("has", "joins") if num_listed == 1 else ("have", "join")
        note = (
            f"{pluralize(num_listed, 'item')} of {file} {verbs[0]} no interactions and {verbs[1]} "
        )
        note += "the lists"
        if num_others := num_new - num_listed - num_misfits:
            verbs = ("has", "does") if num_others == 1 else ("have", "do")
            note += f", {num_others:,} {verbs[0]} no feature and {verbs[1]} not"
        notes = {"new items": note}
        if num_misfits:
            notes["ids of new items"] = (
                f"{short_repr(misfit)} is not an integer like the other ids, and does not join the "
                f"lists ({pluralize(num_misfits, 'id')} like it); --item-id-type text takes it "
                "(item_id_type='text' in Python)"
            )
        return notes

    def queries(self) -> dict[str, str]:
        """Return the contents of the files, by their names."""
        cases = " ".join(
            f"WHEN {number} THEN {sql_literal(feature.name)}"
            for number, feature in enumerate(self._features)
        )
        values = steps.FEATURE_VALUES_FILE.format(cases=cases)
        return {"features": steps.FEATURES_FILE, "feature_values": values}


def _find_feature(source: Source, text: str) -> _Feature:
    """Return the column that ``text`` names, and the separator of its values, if any."""
    columns = [*source.columns, *source.repeated]
    # A sign at the end splits the values, unless a column has the sign in its name: "genres|".
    if text not in columns and text[:-1] in columns and not text[-1].isalnum():
        name, mark = text[:-1], text[-1]
    else:
        name, mark = text, ""
    if name not in columns:
        raise FeaturesError(has_no_column(source, {"features": name}))
    check_columns([source], [name])
    return _Feature(name=name, mark=mark)
