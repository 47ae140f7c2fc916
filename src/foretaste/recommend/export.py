"""Lists of many users as one file: Parquet, CSV or JSON lines, written as they are made."""

from __future__ import annotations

import json
import os
from collections import Counter
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

from foretaste._util.atomic import atomic_file
from foretaste._util.settings import check_settings
from foretaste.errors import SettingError
from foretaste.recommend.lists import ListMaker, Lists, Made, batches

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable

WriteTable = Callable[[pa.Table], None]

_ROW_GROUP_ROWS = 131_072
_FORMULA = r"^([=+\-@\t\r\n＝＋－＠])"


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written."""

    path: Path
    num_users: int
    num_rows: int = 0
    """Recommended items, all users together."""
    num_short_lists: int = 0
    """Users with fewer items than asked: the catalogue or the candidates ran out."""
    num_popularity_lists: int = 0
    """Users answered in popularity order: training saw nothing of their history, or the run does
    not know them."""
    num_partial_histories: int = 0
    """Users of whose given history a part was ignored: training never saw those items."""
    notes: tuple[str, ...]
    """What callers should know of the ids they gave, and of the scores."""


@dataclass(frozen=True)
class Output:
    """A file to write lists to; raises SettingError where that cannot be."""

    path: Path
    overwrite: bool
    spreadsheet_safe: bool
    """Text that a spreadsheet would compute gets an apostrophe in front; for CSV alone."""

    def __post_init__(self) -> None:
        check_settings(self)
        check_output(self.path, self.overwrite)
        if self.spreadsheet_safe and self.path.suffix != ".csv":
            raise SettingError(
                f"spreadsheet_safe is about CSV, and output {self.path} is none; name a .csv, or "
                "leave it out"
            )


def check_output(path: Path, overwrite: bool) -> None:
    """SettingError where lists cannot be written to ``path``."""
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


def write_lists(
    output: Output,
    asked: pa.Table,
    items: IdTable,
    maker: ListMaker,
    make: Callable[[NDArray[np.int64]], Made],
    progress: Callable[[int, int], None] | None,
    notes: tuple[str, ...] = (),
) -> Export:
    """Write the lists that ``make`` has for the rows of ``asked``, some rows at a time.

    ``asked`` has one column: whom each list is for.
    """
    counts: Counter[str] = Counter()
    schema = _lists_schema(asked.schema, items)
    with _table_writer(output, schema) as write:
        for rows in batches(len(asked), maker.num_columns, maker.model.device):
            made = make(rows)
            write(_lists_table(asked.take(rows), items, made.lists, schema))
            counts.update(made.counts(maker.k))
            if progress is not None:
                progress(int(rows[-1]) + 1, len(asked))
    return Export(path=output.path, num_users=len(asked), notes=notes + maker.notes, **counts)


def _lists_schema(asked: pa.Schema, items: IdTable) -> pa.Schema:
    """Columns of the file: whom it is for, rank, item_id, score and, where there are any, title."""
    fields = [
        *asked,
        ("rank", pa.int32()),
        ("item_id", items.table.schema.field("id").type),
        ("score", pa.float32()),
    ]
    if items.has_column("title"):
        fields.append(("title", items.table.schema.field("title").type))
    return pa.schema(fields)


def _lists_table(asked: pa.Table, items: IdTable, lists: Lists, schema: pa.Schema) -> pa.Table:
    """Lists as one row per recommended item."""
    row, place = np.nonzero(lists.filled())
    item_index = lists.item_index[row, place]
    columns: list[Any] = [
        asked.column(0).take(row),
        pa.array((place + 1).astype(np.int32)),
        items.table.column("id").take(item_index),
        pa.array(lists.score[row, place]),
    ]
    if items.has_column("title"):
        columns.append(items.table.column("title").take(item_index))
    return pa.table(columns, schema=schema)


@contextmanager
def _table_writer(output: Output, schema: pa.Schema) -> Iterator[WriteTable]:
    """Yield a function that appends a table; the file appears, whole, when the block ends well."""
    path = output.path
    try:
        with atomic_file(path) as temporary, _WRITERS[path.suffix](temporary, schema) as write:
            yield (
                (lambda table: write(without_formulas(table))) if output.spreadsheet_safe else write
            )
    except OSError as error:
        # What the error says of its file is about a temporary one.
        reason = os.strerror(error.errno) if error.errno else error
        raise SettingError(f"output {path} cannot be written: {reason}") from error


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


def csv_text(table: pa.Table, *, with_header: bool, spreadsheet_safe: bool = False) -> str:
    """A table as `.csv` files have it, the line of column names only ``with_header``."""
    if spreadsheet_safe:
        table = without_formulas(table)
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=with_header))
    return str(sink.getvalue().to_pybytes(), "utf-8")


def without_formulas(table: pa.Table) -> pa.Table:
    """The same with an apostrophe before all text that a spreadsheet would compute.

    As OWASP advises against CSV injection: text that begins with = + - @, a tab or a line end, or
    with the wide forms of these signs.
    """
    import pyarrow.compute as pc

    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            safe = pc.replace_substring_regex(table.column(number), _FORMULA, r"'\1")
            table = table.set_column(number, field, safe)
    return table


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
