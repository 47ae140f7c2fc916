"""Translation between dense indexes and the customer's own ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import atomic_file, real_path
from foretaste._util.formatting import short_repr
from foretaste._util.settings import setting_error
from foretaste.data.config import InputConfig
from foretaste.data.part_files import number_column, numbers
from foretaste.data.spellings import PAIR, find_spelling
from foretaste.errors import DatasetError, SettingError

Kind = Literal["user", "item"]

Input = TypeVar("Input", bound=InputConfig)

Id = int | str
Ids = Id | Iterable[Id]
"""Ids, or a single one."""

# `int` alone reads 042, 1_000 and " 42 " too. 19 digits hold every int64; the bounds are a check of
# their own.
_EXACT_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INTEGERS = (int, np.integer)
# Bounds of int64. `numpy.iinfo` has the same numbers, and a call of it takes ten times as long.
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
Rows = Sequence[int] | NDArray[np.integer]
"""Numbers of rows of a table."""

MAX_BYTES = 1024
"""Most bytes of an id in UTF-8. An index entry of PostgreSQL for a user and an item holds 2,704."""

# Up to this many values are taken one by one: Arrow's `take` imports pandas first, if installed.
_FEW = 100


def as_ids(name: str, ids: Ids, *, single: bool = True) -> list[Id]:
    """Return the ids of any iterable (list, set, array, pandas column), or of a single id.

    An id is text or an integer of 64 bits. Raises SettingError with the first element that is
    neither.
    """
    if single and is_id(ids):
        return [ids if isinstance(ids, str) else int(ids)]
    _refuse_frame(name, ids)
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        allowed = (
            "an id or a list of ids" if single else f"a list of ids; write [{short_repr(ids)}]"
        )
        raise setting_error(name, ids, allowed)
    values = as_list(ids)
    # `_int64` checks the size of integers later, when it makes an array. A check of each integer
    # here cost a sixth of the time of 256 lists.
    is_sound = len(kinds := set(map(type, values))) < 2 and kinds <= {int, str}
    return values if is_sound else [_as_id(name, *one) for one in enumerate(values)]


def as_list(values: Iterable[Any]) -> list[Any]:
    """Return the values of any iterable as a list of Python objects."""
    for to_list in ("tolist", "to_pylist"):
        if hasattr(values, to_list):
            found = getattr(values, to_list)()
            return found if isinstance(found, list) else [found]  # an array of no dimension
    return list(values)


def is_id(value: object) -> TypeGuard[Id]:
    """Return True for text, and for an integer of 64 bits."""
    if isinstance(value, str):
        return True
    if isinstance(value, bool) or not isinstance(value, _INTEGERS):  # bool is a kind of int
        return False
    return bool(_LEAST <= value <= _MOST)


def _int64(values: Sequence[Id]) -> NDArray[np.int64]:
    """Return an array of integers of 64 bits; SettingError with the first larger integer."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([_as_id("ids", *one) for one in enumerate(values)])


def _as_id(name: str, position: int, value: object) -> Id:
    if is_id(value):
        return value if isinstance(value, str) else int(value)
    text = str(value)
    if value is None or text in ("nan", "NaT", "<NA>"):
        problem = "is missing; leave its row out"
    elif isinstance(value, float | np.floating):
        problem = (
            "is no integer but a float; a missing value makes all of a column floats: leave its "
            "row out, then make the others integers"
        )
    else:
        problem = "is no id; ids are integers of 64 bits or text"
    raise SettingError(f"{name}: {short_repr(value)} at position {position} {problem}")


def _refuse_frame(name: str, given: Any) -> None:
    """Raise SettingError for a mapping, a frame, or a pandas column that has ids in its index."""
    if isinstance(given, Mapping):
        raise SettingError(f"{name} is a mapping; give its keys or its values as a list of ids")
    if hasattr(given, "columns"):
        raise SettingError(
            f"{name} is a frame; give its column of ids, as frame['{name.removesuffix('s')}']; "
            "frame.reset_index() makes columns of ids in the index"
        )
    if not hasattr(given, "iloc"):
        return
    of_index, of_values = (
        isinstance(part.name, str) and any(find_spelling([part.name], role, "") for role in PAIR)
        for part in (given.index, given)
    )
    if of_index and not of_values:
        raise SettingError(
            f"{name} is a column {short_repr(given.name)} whose index is "
            f"{short_repr(given.index.name)}; "
            "give the ids: its index, or their column of series.reset_index()"
        )


def id_array(ids: Sequence[Id]) -> pa.Array:
    """Return an Arrow column of ids: integers, or text if any of them is text."""
    # One id with letters makes all ids of a column text, so the readers of events, histories and
    # files check the type.
    if not ids or any(isinstance(value, str) for value in ids):
        return pa.array(list(map(str, ids)), pa.string())
    return pa.array(_int64(ids))


@dataclass(frozen=True, kw_only=True, eq=False)
class IdTable:
    """Ids of users or items: row ``i`` has the id of dense index ``i``, and further columns."""

    kind: Kind
    """Users or items."""

    table: pa.Table
    """Column ``id`` (int64 or string) first, then further columns: ``part``, ``title``, ..."""

    @classmethod
    def from_ids(cls, kind: Kind, ids: Iterable[Id], **columns: Iterable[object]) -> IdTable:
        """Return a table of ids and further columns. The ids are text if any of them is text."""
        arrays = {"id": id_array(as_ids(f"{kind}_ids", ids))} | {
            name: pa.array(list(values)) for name, values in columns.items()
        }
        return cls(kind=kind, table=pa.table(arrays))

    @classmethod
    def read(cls, path: Path | str, content: pa.Buffer | None = None) -> IdTable:
        """Return the table in the file at ``path``, or in ``content`` if the file was read.

        Raises DatasetError if the file cannot be read or is no table of ids.
        """
        try:
            # `pq.read_table` would import pandas, if installed, which takes 0.2 s.
            with pq.ParquetFile(
                real_path(path) if content is None else pa.BufferReader(content)
            ) as file:
                rows = file.read()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from None
        if rows.column_names[:2] not in (["user_index", "user_id"], ["item_index", "item_id"]):
            raise DatasetError(
                f"{path}: expected columns user_index, user_id or item_index, item_id first, "
                f"found {', '.join(rows.column_names):.200}"
            )
        return cls.of_rows(rows)

    @classmethod
    def of_rows(cls, rows: pa.Table) -> IdTable:
        """Return the table of a file's rows, with ``<kind>_index`` first, then ``<kind>_id``."""
        index, _, *others = rows.column_names
        table = rows.drop_columns([index]).rename_columns(["id", *others])
        return cls(kind="user" if index == "user_index" else "item", table=table)

    def write(self, path: Path | str) -> None:
        """Write a Parquet file, ``<kind>_index`` and ``<kind>_id`` first, whole or not at all."""
        path = Path(path)
        index = number_column(np.arange(len(self), dtype=np.int32))
        table = self.table.rename_columns([f"{self.kind}_id", *self.table.column_names[1:]])
        with atomic_file(path) as temporary:
            pq.write_table(table.add_column(0, f"{self.kind}_index", index), real_path(temporary))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def is_integer(self) -> bool:
        """True if ids are integers; otherwise ids are text."""
        return bool(pa.types.is_integer(self.table.schema.field("id").type))

    def ids(self, index: Rows | None = None) -> list[Id]:
        """Return the customer's ids of the given rows, or of all."""
        return self._values("id", index)

    def has_column(self, name: str) -> bool:
        return name in self.table.column_names

    def column(self, name: str) -> list[Any]:
        """Return the values of a further column, one per row; None for a missing value."""
        return self._values(name, None)

    def titles(self, index: Rows | None = None) -> list[str | None] | None:
        """Return titles of the given rows, or of all; None if the table has no column of titles."""
        return self._values("title", index) if self.has_column("title") else None

    def as_kept(self, ids: Iterable[Id]) -> list[Id]:
        """Return the ids, known or not, in this table's type: ``"42"`` as 42 among integers."""
        if self.is_integer:
            return [value if (kept := _as_integer(value)) is None else kept for value in ids]
        return [str(value) for value in ids]

    def of_another_type(self, ids: Iterable[Id]) -> list[Id]:
        """Return the ids that a table of this type cannot hold: text in a table of integers."""
        return [value for value in ids if self.is_integer and _as_integer(value) is None]

    def lookup(self, ids: Iterable[Id]) -> NDArray[np.int64]:
        """Return the row of each id, int64, -1 if unknown; SettingError for a value that is no id.

        Text that spells an integer exactly (``"42"``, not ``"042"``) finds that integer id. An
        integer finds the text id of its spelling. Unknown text finds the id of the same Unicode
        form NFC, if only one id has that form.
        """
        return self.rows_of(as_ids("ids", ids, single=False))

    def rows_of(self, given: Sequence[Id]) -> NDArray[np.int64]:
        """Return the rows of `lookup`, for ids that `as_ids` returned."""
        if not self.is_integer:
            found = [self._row_of_text.get(str(value), -1) for value in given]
            for place, row in enumerate(found):
                if row < 0 and not (text := str(given[place])).isascii():
                    found[place] = self._row_of_form.get(normalize("NFC", text), -1)
            return np.array(found, dtype=np.int64)
        if set(map(type, given)) == {int}:
            wanted, valid = _int64(given), np.ones(len(given), dtype=bool)
        else:
            parsed = [_as_integer(value) for value in given]
            valid = np.array([value is not None for value in parsed], dtype=bool)
            wanted = np.array([value or 0 for value in parsed], dtype=np.int64)
        ordered, order = self._sorted_integers
        if not len(ordered):
            return np.full(len(wanted), -1, dtype=np.int64)
        position = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(valid & (ordered[position] == wanted), order[position], -1)

    def _values(self, name: str, index: Rows | None) -> list[Any]:
        column = self.table.column(name)
        if index is None:
            return list(column.to_pylist())
        rows = np.asarray(index)
        is_sound = rows.ndim == 1 and (
            not rows.size
            or (rows.dtype.kind in "iu" and rows.min() >= 0 and rows.max() < len(self))
        )
        if not is_sound:
            raise setting_error("index", index, f"rows of the table, from 0 to {len(self) - 1}")
        if rows.size and name == "id" and self.is_integer:  # a hundred take 15 us; one by one, 100
            return list(self._integers[rows].tolist())
        if len(rows) <= _FEW:
            return [column[row].as_py() for row in rows.tolist()]
        return list(column.take(pa.array(rows)).to_pylist())

    @cached_property
    def _integers(self) -> NDArray[np.int64]:
        return numbers(self.table.column("id"))

    @cached_property
    def _sorted_integers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids = self._integers
        order = np.argsort(ids, kind="stable")
        return ids[order], order

    @cached_property
    def _row_of_form(self) -> dict[str, int]:
        """The row of each NFC form that exactly one id has."""
        forms = group_by_form(self._row_of_text)
        return {
            form: self._row_of_text[texts[0]] for form, texts in forms.items() if len(texts) == 1
        }

    @cached_property
    def _row_of_text(self) -> dict[str, int]:
        return {value: row for row, value in enumerate(self.table.column("id").to_pylist())}


def group_by_form(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the texts by their Unicode form NFC. ASCII texts have a single form: left out."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        if not text.isascii():
            groups.setdefault(normalize("NFC", text), []).append(text)
    return groups


def _as_integer(value: Id) -> int | None:
    """Return an integer, also from text that spells an integer exactly; None for other text."""
    if isinstance(value, str):
        if not _EXACT_INTEGER.fullmatch(value):
            return None
        value = int(value)
    return value if _LEAST <= value <= _MOST else None
