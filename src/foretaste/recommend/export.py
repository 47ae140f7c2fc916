"""Lists of many users as one file: Parquet, CSV or JSON lines, written as they are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste.atomic import atomic_file
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.lists import Lists

WriteTable = Callable[[pa.Table], None]

_ROW_GROUP_ROWS = 131_072


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written."""

    path: Path
    num_users: int
    num_rows: int
    """Recommended items, all users together."""
    num_short_lists: int
    """Users with fewer items than asked: the catalogue or the candidates ran out."""
    num_popularity_lists: int
    """Users answered in popularity order: training saw nothing of their history."""
    notes: tuple[str, ...]
    """Which ids of ``exclude`` and ``candidates`` were ignored."""


def check_output(path: Path, overwrite: bool) -> Path:
    """``path`` itself; SettingError where lists cannot be written to it."""
    if path.suffix not in _WRITERS:
        raise SettingError(
            f"output {path} must end in {', '.join(_WRITERS)}: the ending chooses the format"
        )
    if not path.parent.is_dir():
        raise SettingError(f"output {path}: there is no directory {path.parent}")
    if path.is_dir():
        raise SettingError(f"output {path} is a directory; name a file in it")
    if path.exists() and not overwrite:
        raise SettingError(
            f"output {path} exists already; replace it with --overwrite (overwrite=True in Python) "
            "or name another"
        )
    return path


def lists_schema(users: IdTable, items: IdTable) -> pa.Schema:
    """Columns of the file: user_id, rank, item_id, score and, where there are any, title."""
    fields = [
        ("user_id", users.table.schema.field("id").type),
        ("rank", pa.int32()),
        ("item_id", items.table.schema.field("id").type),
        ("score", pa.float32()),
    ]
    if items.has_column("title"):
        fields.append(("title", items.table.schema.field("title").type))
    return pa.schema(fields)


def lists_table(
    users: IdTable, items: IdTable, user_index: NDArray[np.int64], lists: Lists
) -> pa.Table:
    """The lists of some users, one row per recommended item."""
    row, place = np.nonzero(lists.filled())
    item_index = lists.item_index[row, place]
    columns: list[Any] = [
        users.table.column("id").take(user_index[row]),
        pa.array((place + 1).astype(np.int32)),
        items.table.column("id").take(item_index),
        pa.array(lists.score[row, place]),
    ]
    if items.has_column("title"):
        columns.append(items.table.column("title").take(item_index))
    return pa.table(columns, schema=lists_schema(users, items))


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """Yield a function that appends a table; ``path`` appears, whole, when the block ends well."""
    with atomic_file(path) as temporary, _WRITERS[path.suffix](temporary, schema) as write:
        yield write


@contextmanager
def _parquet_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """Small tables are gathered into row groups of a size that readers like."""
    gathered: list[pa.Table] = []
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_table(pa.concat_tables(gathered))
            gathered.clear()

        def write(table: pa.Table) -> None:
            gathered.append(table)
            if sum(table.num_rows for table in gathered) >= _ROW_GROUP_ROWS:
                flush()

        yield write
        if gathered:
            flush()


@contextmanager
def _csv_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    with pa_csv.CSVWriter(path, schema) as writer:
        yield writer.write_table


@contextmanager
def _json_lines_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    with path.open("w", encoding="utf-8") as file:

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

        yield write


_WRITERS: dict[str, Callable[[Path, pa.Schema], AbstractContextManager[WriteTable]]] = {
    ".parquet": _parquet_writer,
    ".csv": _csv_writer,
    ".jsonl": _json_lines_writer,
}
