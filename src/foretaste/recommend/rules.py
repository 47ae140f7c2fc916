"""Rules: conditions on the columns of items, such as ``stock > 0``, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.files import read_small
from foretaste._util.formatting import did_you_mean, short_repr
from foretaste._util.settings import validate
from foretaste.data.config import PairsConfig
from foretaste.data.ids import IdTable
from foretaste.errors import InputError, SettingError
from foretaste.recommend.conditions import ItemColumns
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import examples, first_few
from foretaste.recommend.item_filter import Condition, ItemFilter
from foretaste.recommend.max_per import Limit, MaxPer

# Texts that stand for no value. NaN is the largest number in SQL, so it would meet stock > 0.
_MISSING = ("", "nan")


class ItemRules:
    """The columns of a run's items, and named conditions on them; immutable."""

    def __init__(
        self,
        items: IdTable,
        num_items: int,
        conditions: Mapping[str, str] | None = None,
        described: pa.Table | None = None,
    ) -> None:
        """Check ``conditions``, SQL by name, on the first ``num_items`` rows of items.

        The columns are those of ``described``, or of ``items`` if ``described`` is None.
        Raises SettingError if the SQL is no condition.
        """
        # Evaluate all rules now, so that an answer only reads a mask and a wrong rule fails early.
        self._ids = items
        self._items = (items.table if described is None else described).slice(0, num_items)
        self._groups: dict[str, NDArray[np.int64]] = {}
        self._masks = {
            name: self._columns.mask(f"rule {name}", sql)
            for name, sql in (conditions or {}).items()
        }

    @classmethod
    def read(
        cls,
        items: IdTable,
        num_items: int,
        rules_file: Path | str | None,
        described: object,
        files: PairsConfig | None = None,
    ) -> ItemRules:
        """Return the rules of a file, on the columns of ``items`` and of ``described``.

        ``described`` is a file or frame of items, whose columns replace columns of the same name.
        Raises InputError if one of them cannot be read, and SettingError as the class does.
        """
        conditions = None
        if rules_file is not None:
            conditions = _conditions(validate("rules_file", rules_file, Path))
        columns = None
        if described is not None:
            columns = _join_descriptions(items, num_items, described, files)
        return cls(items, num_items, conditions, columns)

    @property
    def names(self) -> list[str]:
        """The names of the rules."""
        return [*self._masks]

    def missing(self, request: ListRequest) -> tuple[str, str] | None:
        """Return the first field that names what the items lack, and a message; or None."""
        for name in request.rules:
            if name not in self._masks:
                known = (
                    f"those read are {first_few(self.names)}" if self._masks else "none were read"
                )
                return "rules", f"no rule is called {short_repr(name)}; {known}"
        columns = self._items.column_names[1:]
        for name, _ in request.max_per:
            if name not in columns:
                have = first_few(columns) or "none but their ids"
                message = f"{short_repr(name)}, which is no column of the items; they have {have}"
                return "max_per", f"max_per has {message}"
        return None

    def filter(self, request: ListRequest) -> ItemFilter:
        """Return the items that the lists of a request may hold, and the limits on them.

        SettingError for a rule or column that is `missing`, and for SQL that is no condition.
        """
        if found := self.missing(request):
            raise SettingError(found[1])
        words, masks = [*request.rules], [self._masks[name] for name in request.rules]
        if request.where is not None:
            words.append(request.where)
            masks.append(self._columns.mask("where", request.where))
        condition = None
        if masks:
            condition = Condition(" and ".join(words), np.logical_and.reduce(masks))
        limits = [Limit(name, most, self._group(name)) for name, most in request.max_per]
        max_per = MaxPer(limits) if limits else None
        return ItemFilter.of(self._ids, len(self._items), request, condition, max_per)

    def _group(self, column: str) -> NDArray[np.int64]:
        """Return the number of each item's value in a column; -1 for an item without a value."""
        if column not in self._groups:
            values = self._texts.column(column).combine_chunks().dictionary_encode()
            self._groups[column] = np.asarray(values.indices.fill_null(-1)).astype(np.int64)
        return self._groups[column]

    @cached_property
    def _columns(self) -> ItemColumns:
        return ItemColumns(self._texts)

    @cached_property
    def _texts(self) -> pa.Table:
        """The ids, and all other columns as text, with NULL for missing values."""
        import pyarrow.compute as pc  # here, so answers without rules need not wait for it

        missing = pa.array(_MISSING)
        item_id, *others = self._items.columns
        texts = [pc.cast(column, pa.string()) for column in others]
        texts = [pc.if_else(pc.is_in(pc.utf8_lower(text), missing), None, text) for text in texts]
        return pa.table([item_id, *texts], names=["item_id", *self._items.column_names[1:]])


def _conditions(path: Path) -> dict[str, str]:
    """Return the rules of a TOML file: SQL by name."""
    try:
        rules = tomllib.loads(read_small(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        meant = did_you_mean(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be read as TOML: {reason}{meant}") from None
    for name, condition in rules.items():
        if not isinstance(condition, str):
            raise InputError(
                f"{path}: {name} is {short_repr(condition)}; write a condition in quotes, such as "
                f'{name} = "stock > 0"'
            )
    return rules


def _join_descriptions(
    items: IdTable, num_items: int, described: object, files: PairsConfig | None
) -> pa.Table:
    """Return the items with the columns of a file or frame added."""
    from foretaste.data.preparation import read_items

    table = read_items(described, files)
    ids = IdTable(kind="item", table=table.rename_columns(["id", *table.column_names[1:]]))
    place = ids.lookup(items.ids())
    place[num_items:] = -1
    if (place < 0).all():
        source = described if isinstance(described, str | Path) else "the items table"
        theirs = f"its ids are such as {first_few(ids.ids())}" if len(ids) else "it has no rows"
        raise InputError(f"{source}: describes no item of the run: {theirs}; {examples(items)}")
    rows = table.take(pa.array(place, mask=place < 0))
    # Names are compared without case, as in SQL.
    replaced = {name.lower() for name in rows.column_names}
    kept = [name for name in items.table.column_names if name.lower() not in replaced]
    joined = items.table.select(kept)
    for name in rows.column_names[1:]:
        joined = joined.append_column(name, rows.column(name))
    return joined
