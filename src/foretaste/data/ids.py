"""Dense indexes and the customer's own ids, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.atomic import atomic_file
from foretaste._util.files import real_path
from foretaste.data.part_files import integers, read_table
from foretaste.errors import DatasetError

Kind = Literal["user", "item"]

_EXACT_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64 = np.iinfo(np.int64)
_FEW = 100
"""Values that are taken one by one: what takes more of them at once imports pandas first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IdTable:
    """Ids of users or items: row ``i`` has that of dense index ``i``, and what else is known."""

    kind: Kind
    """Users or items."""

    table: pa.Table
    """Column ``id`` (int64 or string) first, then what else is known: ``part``, ``title``, ..."""

    @classmethod
    def from_ids(cls, kind: Kind, ids: Iterable[int | str], **columns: Iterable[Any]) -> IdTable:
        """A table of the given ids, all integers or all text, and further columns."""
        values: Any = pa.array(list[Any](ids))
        kept = pa.int64() if pa.types.is_integer(values.type) else pa.string()
        arrays = {"id": values.cast(kept)} | {
            name: pa.array(list[Any](values)) for name, values in columns.items()
        }
        return cls(kind=kind, table=pa.table(arrays))

    @classmethod
    def read(cls, path: Path | str, content: pa.Buffer | None = None) -> IdTable:
        """The table written at ``path``, of these bytes where they were read already.

        Raises DatasetError where it is missing or not one of ours.
        """
        table = read_table(path, content)
        for kind in ("user", "item"):
            if table.column_names[:2] == [f"{kind}_index", f"{kind}_id"]:
                break
        else:
            raise DatasetError(
                f"{path}: expected columns user_index, user_id or item_index, item_id first, "
                f"found {', '.join(table.column_names):.200}"
            )
        index, ids = table.column(0), table.column(1)
        if ids.type not in (pa.int64(), pa.string()) or ids.null_count:
            raise DatasetError(
                f"{path}: {kind}_id must be int64 or text without gaps, found "
                f"{ids.type!s:.200} with {ids.null_count:,} gaps; prepare again"
            )
        is_index = index.type == pa.int32() and not index.null_count
        if not is_index or not np.array_equal(integers(index), np.arange(len(index))):
            raise DatasetError(f"{path}: {kind}_index does not count 0, 1, 2, ...; prepare again")
        names = ["id", *table.column_names[2:]]
        return cls(kind=kind, table=table.drop_columns([f"{kind}_index"]).rename_columns(names))

    def write(self, path: Path | str) -> None:
        """Write as Parquet, ``<kind>_index`` and ``<kind>_id`` first; complete or not at all."""
        path = Path(path)
        index = pa.array(np.arange(len(self), dtype=np.int32))
        table = self.table.rename_columns([f"{self.kind}_id", *self.table.column_names[1:]])
        with atomic_file(path) as temporary:
            pq.write_table(table.add_column(0, f"{self.kind}_index", index), real_path(temporary))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def is_integer(self) -> bool:
        """True where ids are integers; text otherwise."""
        return bool(pa.types.is_integer(self.table.schema.field("id").type))

    def ids(self, index: NDArray[np.integer] | None = None) -> list[int | str]:
        """The customer's ids of the given rows, or of all."""
        return self._values("id", index)

    def has_column(self, name: str) -> bool:
        return name in self.table.column_names

    def column(self, name: str) -> list[Any]:
        """One value per row of a further column, None where it is not known."""
        return self._values(name, None)

    def titles(self, index: NDArray[np.integer] | None = None) -> list[str | None] | None:
        """Titles of the given rows, or of all; None where the table has no titles at all."""
        return self._values("title", index) if self.has_column("title") else None

    def as_kept(self, ids: Iterable[int | str]) -> list[int | str]:
        """Ids that need not be here, as they would be kept: ``"42"`` is 42 among integers."""
        if self.is_integer:
            return [value if (kept := _as_integer(value)) is None else kept for value in ids]
        return [str(value) for value in ids]

    def lookup(self, ids: Iterable[int | str]) -> NDArray[np.int64]:
        """The row of each id, int64, -1 where unknown.

        Text is looked up among integer ids where it spells an integer exactly (``"42"``, not
        ``"042"``), and an integer among text ids by its spelling.
        """
        if not self.is_integer:
            found = [self._row_of_text.get(_as_text(value), -1) for value in ids]
            return np.array(found, dtype=np.int64)
        if not isinstance(ids, np.ndarray):
            ids = list(ids)
            if set(map(type, ids)) == {int}:
                with suppress(OverflowError):
                    ids = np.array(ids, dtype=np.int64)
        if isinstance(ids, np.ndarray) and ids.dtype.kind == "i":
            wanted, valid = ids.astype(np.int64), np.ones(len(ids), dtype=bool)
        else:
            parsed = [_as_integer(value) for value in ids]
            valid = np.array([value is not None for value in parsed], dtype=bool)
            wanted = np.array([value or 0 for value in parsed], dtype=np.int64)
        ordered, order = self._sorted_integers
        if not len(ordered):
            return np.full(len(wanted), -1, dtype=np.int64)
        position = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(valid & (ordered[position] == wanted), order[position], -1)

    def _values(self, name: str, index: NDArray[np.integer] | None) -> list[Any]:
        column = self.table.column(name)
        if index is None:
            return list(column.to_pylist())
        if len(index) <= _FEW:
            return [column[row].as_py() for row in index.tolist()]
        return list(column.take(pa.array(index)).to_pylist())

    @cached_property
    def _sorted_integers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids = integers(self.table.column("id"))
        order = np.argsort(ids, kind="stable")
        return ids[order], order

    @cached_property
    def _row_of_text(self) -> dict[str | None, int]:
        return {value: row for row, value in enumerate(self.table.column("id").to_pylist())}


def _as_integer(value: object) -> int | None:
    if isinstance(value, str):
        value = int(value) if _EXACT_INTEGER.fullmatch(value) else None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value) if _INT64.min <= value <= _INT64.max else None
    return None


def _as_text(value: object) -> str | None:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else None
