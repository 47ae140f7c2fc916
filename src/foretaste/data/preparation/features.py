"""Features of items: their columns in the items file, the values that several items have, and new
items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from foretaste._util.formatting import shown, spelled_like
from foretaste.data.preparation import steps
from foretaste.data.preparation.casts import Kind, cast
from foretaste.data.sources.source import Column, Source, quoted
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_BLANKS = "concat(' ', chr(9), chr(10), chr(13), chr(160))"


class _Feature(NamedTuple):
    """A column of features."""

    name: str

    mark: str
    """The sign between several values; empty if there is none."""


class ItemFeatures:
    """The columns of features in a file of items.

    Raises SettingError for a column that the file does not have, that is named twice, or that has
    the ids, ``key``.
    """

    def __init__(self, source: Source, asked: Sequence[str], key: str) -> None:
        self._source = source
        self._features = [_found(source, text) for text in asked]
        names = [feature.name for feature in self._features]
        for name in names:
            if name == key or names.count(name) > 1:
                problem = "has the item ids" if name == key else "is named twice"
                raise SettingError(f"features names {shown(name)}, which {problem}")
        self.notes: dict[str, str] = {}
        self.num_listed_items = 0

    def read(self, engine: Engine, source: Source, item_id: str) -> None:
        """Make table ``values_of_items`` of the values of each item, by ``described_id``, from the
        registered source and the SQL of its ids."""
        selects = []
        for number, feature in enumerate(self._features):
            column = source.columns[feature.name]
            rows, value = source.relation, column
            id_sql = item_id
            if column.elements is not None or feature.mark:
                values = column.sql
                if feature.mark:
                    values = engine.sql.split.format(text=values, mark=quoted(feature.mark))
                each = engine.sql.each.format(values=values)
                rows = f"(SELECT {item_id} AS described_id, {each} AS element FROM {rows})"
                storage = column.elements or column.storage
                value = replace(column, sql="element", storage=storage)
                id_sql = "described_id"
            selects.append(
                f"SELECT {id_sql} AS described_id, {number} AS column_number, "
                f"{cast(engine.sql, value, 'text')} AS value FROM {rows}"
            )
        rows = "\nUNION ALL ".join(selects)
        engine.make(
            "values_of_items",
            "SELECT DISTINCT described_id, column_number, value FROM ("
            f"SELECT described_id, column_number, trim(BOTH {_BLANKS} FROM value) AS value "
            f"FROM ({rows})) WHERE described_id IS NOT NULL AND value <> ''",
        )

    def number(self, engine: Engine, kind: Kind) -> None:
        """Make ``items`` anew, with new items and in the order of the lists, and
        ``feature_values``. ``kind`` is that of the item ids, and ``known_items`` has those of the
        source, filtered ones too."""
        id_text = Column(sql="described_id", storage="text", type_name="text")
        engine.make("listable", steps.LISTABLE.format(new_id=cast(engine.sql, id_text, kind)))
        engine.make("sizes_of_values", steps.SIZES_OF_VALUES)
        num_items = engine.count("listable")
        engine.make("feature_values", steps.FEATURE_VALUES.format(num_items=num_items))
        engine.drop("items")
        engine.make("items", steps.LISTED_ITEMS)
        self.num_listed_items = engine.count("items WHERE is_listed")

    def queries(self) -> dict[str, str]:
        """The contents of the files, by their names."""
        cases = " ".join(
            f"WHEN {number} THEN {quoted(feature.name)}"
            for number, feature in enumerate(self._features)
        )
        values = steps.FEATURE_VALUES_FILE.format(cases=cases)
        return {"features": steps.FEATURES_FILE, "feature_values": values}


def _found(source: Source, text: str) -> _Feature:
    """The column that ``text`` names, alone or with the sign between its values."""
    columns = source.columns
    if text in columns:
        return _Feature(text, "")
    if text[:-1] in columns and not text[-1].isalnum():
        return _Feature(text[:-1], text[-1])
    meant = [*spelled_like(text, list(columns))]
    hint = f"; did you mean {' and '.join(map(shown, meant))}?" if meant else ""
    raise SettingError(
        f"features names {shown(text)}, and {source.name} has no such column: it has "
        f"{', '.join(map(shown, columns))}{hint}"
    )
