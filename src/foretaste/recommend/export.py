"""Writer of the lists of many users, batch by batch: one file of Parquet, CSV or JSON lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from foretaste._util.files import atomic_file
from foretaste._util.formatting import compact, pluralize
from foretaste._util.settings import check_settings, validate
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.top_k import TopItems

Progress = Callable[[int, int], None]
WriteTable = Callable[[pa.Table], None]

ROW_GROUP_ROWS = 131_072
_FORMULA = r"^([=+\-@\t\r\n＝＋－＠])"


@dataclass(frozen=True)
class Output:
    """A file to write lists to; SettingError if it cannot be written."""

    path: Path
    overwrite: bool
    spreadsheet_safe: bool
    """True to prefix text that a spreadsheet would compute with an apostrophe; CSV only."""

    @classmethod
    def of(cls, output: Path | str, *, overwrite: bool, spreadsheet_safe: bool) -> Output:
        """Return the output at a path, which may be text."""
        return cls(validate("output", output, Path), overwrite, spreadsheet_safe)

    def __post_init__(self) -> None:
        check_settings(self)
        path = self.path
        if path.suffix not in _WRITERS:
            raise SettingError(
                f"output {path} must end in {', '.join(_WRITERS)}: the ending chooses the format"
            )
        if not path.parent.is_dir():
            raise SettingError(f"output {path}: there is no directory {path.parent}")
        if path.is_dir():
            raise SettingError(f"output {path} is a directory; name a file in it")
        if path.exists() and not self.overwrite:
            raise self._exists()

    def _exists(self) -> SettingError:
        return SettingError(
            f"output {self.path} exists already; replace it with --overwrite (overwrite=True in "
            "Python) or name another"
        )

    @contextmanager
    def writer(self, schema: pa.Schema) -> Iterator[WriteTable]:
        """Yield a function that appends a table; the whole file appears at the end of the block.

        SettingError if another process wrote the output in the meantime, unless ``overwrite``.
        """
        path = self.path
        try:
            with (
                atomic_file(path, replace=self.overwrite) as file,
                _WRITERS[path.suffix](file, schema) as write,
            ):
                if self.spreadsheet_safe and path.suffix == ".csv":
                    yield lambda table: write(without_formulas(table))
                else:
                    yield write
        except FileExistsError as error:
            raise self._exists() from error
        except OSError as error:
            # Without the error's own file name, which names a temporary file.
            reason = os.strerror(error.errno) if error.errno else error
            raise SettingError(f"output {path} cannot be written: {reason}") from error


@contextmanager
def _parquet_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """A writer that gathers small tables into row groups of common size."""
    import pyarrow.parquet as pq

    gathered: list[pa.Table] = []
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_table(pa.concat_tables(gathered))
            gathered.clear()

        def write(table: pa.Table) -> None:
            # The table is copied into Arrow's own memory. Columns of NumPy would lie between the
            # blocks of scores, so the C library could not reuse those blocks: 1,054 MiB, and 399
            # with this copy.
            gathered.append(table.take(pa.array(range(table.num_rows), pa.int64())))
            if sum(table.num_rows for table in gathered) >= ROW_GROUP_ROWS:
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
    """Return a table as the text of a `.csv` file; ``with_header`` adds the column names."""
    if spreadsheet_safe:
        table = without_formulas(table)
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=with_header))
    return str(sink.getvalue().to_pybytes(), "utf-8")


def without_formulas(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before text that a spreadsheet would compute.

    That is text that begins with = + - @, a tab or a line end, or with the full-width forms of
    these signs, as in OWASP's advice on CSV injection.
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
    """Number of users with a list; for `similar_all`, number of items."""
    num_rows: int = 0
    """Number of recommended items over all users."""
    num_short_lists: int = 0
    """Number of users with fewer than k items: the catalogue or the candidates ran out."""
    num_popularity_lists: int = 0
    """Number of users answered in popularity order: training saw nothing of their history, or the
    run does not know them."""
    num_partial_histories: int = 0
    """Number of users with given items that were ignored because training never saw them."""
    notes: tuple[str, ...]
    """Remarks on the given ids and on the scores."""
    elapsed_s: float = 0.0
    """Seconds to make and write the lists."""

    def speed(self, kind: str) -> str:
        """Return a line with the time and rate of the lists; ``kind`` is "user" or "item"."""
        rate = compact(self.num_users / max(self.elapsed_s, 1e-9))
        return f"{pluralize(self.num_users, kind)} in {self.elapsed_s:.3g} s: {rate} {kind}s/s"


_COUNTS = ("num_rows", "num_short_lists", "num_popularity_lists", "num_partial_histories")
"""The fields of an `Export` that are sums over its lists."""


def write_lists(
    output: Output,
    about: pa.Table,
    items: IdTable,
    lists: Iterable[TopItems],
    k: int,
    progress: Progress | None,
) -> Export:
    """Write ``lists``, batches of lists: one list for each row of ``about``, in its order.

    ``about`` has one column: the user, history or item of each list.
    """
    started = time.perf_counter()
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
    counts = np.zeros(len(_COUNTS), dtype=np.int64)
    num_done = 0
    with output.writer(schema) as write:
        for top in lists:
            rows = slice(num_done, num_done + len(top.length))
            write(_lists_table(about[rows], items, top, schema))
            counts += _counts(top, k)
            num_done = rows.stop
            if progress is not None:
                progress(num_done, len(about))
    return Export(
        path=output.path,
        num_users=len(about),
        notes=(),
        elapsed_s=time.perf_counter() - started,
        **dict(zip(_COUNTS, counts.tolist(), strict=True)),
    )


def _counts(top: TopItems, k: int) -> list[int]:
    """Return the counts of some lists, in the order of `_COUNTS`."""
    is_known = top.num_known > 0
    has_remarks = np.array([bool(remarks) for remarks in top.remarks], dtype=bool)
    each = (top.length < k, ~is_known, is_known & has_remarks)
    return [int(top.length.sum()), *(int(np.count_nonzero(found)) for found in each)]


def _lists_table(about: pa.Table, items: IdTable, top: TopItems, schema: pa.Schema) -> pa.Table:
    """Return a table with one row per recommended item."""
    row, column = np.nonzero(top.filled())
    item_index = top.item_index[row, column]
    columns: list[pa.Array] = [
        about.column(0).take(row),
        pa.array((column + 1).astype(np.int32)),
        items.table.column("id").take(item_index),
        pa.array(top.score[row, column]),
    ]
    if items.has_column("title"):
        columns.append(items.table.column("title").take(item_index))
    return pa.table(columns, schema=schema)
