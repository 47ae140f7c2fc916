"""Lists of many users as one file, written as they are made: Parquet, CSV or JSON lines."""

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

from foretaste._util.atomic import atomic_file
from foretaste._util.files import is_name_text
from foretaste._util.settings import check_settings
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.top_k import SimilarItemRanker, TopItems, UserRanker

WriteTable = Callable[[pa.Table], None]

_ROW_GROUP_ROWS = 131_072
_FORMULA = r"^([=+\-@\t\r\n＝＋－＠])"


@dataclass(frozen=True)
class Output:
    """A file to write lists to; raises SettingError where that cannot be."""

    path: Path
    overwrite: bool
    spreadsheet_safe: bool
    """Text that a spreadsheet would compute gets an apostrophe in front; for CSV alone."""

    def __post_init__(self) -> None:
        check_settings(self)
        path = self.path
        if not is_name_text(path):
            raise SettingError(f"output {path}: its name is not UTF-8 text; name another")
        if path.suffix not in _WRITERS:
            raise SettingError(
                f"output {path} must end in {', '.join(_WRITERS)}: the ending chooses the format"
            )
        if not path.parent.is_dir():
            raise SettingError(f"output {path}: there is no directory {path.parent}")
        if path.is_dir():
            raise SettingError(f"output {path} is a directory; name a file in it")
        if path.exists() and not self.overwrite:
            raise SettingError(
                f"output {path} exists already; replace it with --overwrite (overwrite=True in "
                "Python) or name another"
            )
        if self.spreadsheet_safe and path.suffix != ".csv":
            raise SettingError(
                f"spreadsheet_safe is about CSV, and output {path} is none; name a .csv, or "
                "leave it out"
            )

    @contextmanager
    def writer(self, schema: pa.Schema) -> Iterator[WriteTable]:
        """Yield what appends a table; the file appears, whole, when the block ends well."""
        path = self.path
        try:
            with atomic_file(path) as temporary, _WRITERS[path.suffix](temporary, schema) as write:
                if self.spreadsheet_safe:
                    yield lambda table: write(without_formulas(table))
                else:
                    yield write
        except OSError as error:
            # What the error says of its file is about a temporary one.
            reason = os.strerror(error.errno) if error.errno else error
            raise SettingError(f"output {path} cannot be written: {reason}") from error


@contextmanager
def _parquet_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """Small tables are gathered into row groups of a size that readers like."""
    import pyarrow.parquet as pq

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
    import pyarrow.csv as pa_csv

    with pa_csv.CSVWriter(path, schema) as writer:
        yield writer.write_table


def csv_text(table: pa.Table, *, with_header: bool, spreadsheet_safe: bool = False) -> str:
    """A table as `.csv` files have it, the line of column names only ``with_header``."""
    if spreadsheet_safe:
        table = without_formulas(table)
    import pyarrow.csv as pa_csv

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


@dataclass(frozen=True, kw_only=True)
class Export:
    """Summary of a written file."""

    path: Path
    num_users: int
    """Users, or items about which was asked what is similar to them."""
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
    """Remarks for the caller on the ids they gave, and on the scores."""


def write_lists(
    output: Output,
    about: pa.Table,
    items: IdTable,
    ranker: UserRanker | SimilarItemRanker,
    rank: Callable[[slice], TopItems],
    progress: Callable[[int, int], None] | None,
    notes: tuple[str, ...] = (),
) -> Export:
    """Write the lists that ``rank`` makes for the rows of ``about``, some rows at a time.

    ``about`` has one column: the user, history or item that each list is for.
    """
    item_fields = items.table.schema
    fields = [
        *about.schema,
        ("rank", pa.int32()),
        ("item_id", item_fields.field("id").type),
        ("score", pa.float32()),
    ]
    if items.has_column("title"):
        fields.append(("title", item_fields.field("title").type))
    schema = pa.schema(fields)
    counts: Counter[str] = Counter()
    with output.writer(schema) as write:
        for rows in ranker.batches(len(about)):
            top = rank(rows)
            write(_lists_table(about[rows], items, top, schema))
            is_known = top.num_known > 0
            has_remarks = np.array([bool(remarks) for remarks in top.remarks], dtype=bool)
            counts["num_rows"] += int(top.length.sum())
            counts["num_short_lists"] += int(np.count_nonzero(top.length < ranker.k))
            counts["num_popularity_lists"] += int(np.count_nonzero(~is_known))
            counts["num_partial_histories"] += int(np.count_nonzero(is_known & has_remarks))
            if progress is not None:
                progress(rows.stop, len(about))
    return Export(path=output.path, num_users=len(about), notes=notes + ranker.notes, **counts)


def _lists_table(about: pa.Table, items: IdTable, top: TopItems, schema: pa.Schema) -> pa.Table:
    """Lists as one row per recommended item."""
    row, column = np.nonzero(top.filled())
    item_index = top.item_index[row, column]
    columns: list[Any] = [
        about.column(0).take(row),
        pa.array((column + 1).astype(np.int32)),
        items.table.column("id").take(item_index),
        pa.array(top.score[row, column]),
    ]
    if items.has_column("title"):
        columns.append(items.table.column("title").take(item_index))
    return pa.table(columns, schema=schema)
