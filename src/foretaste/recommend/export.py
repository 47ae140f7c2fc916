"""Lists of many users, written as they are made: one file of Parquet, CSV or JSON lines, or a
directory of part files."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.atomic import atomic_directory, atomic_file, is_empty_directory
from foretaste._util.formatting import compact, counted
from foretaste._util.settings import check_settings, checked
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.top_k import SimilarItemRanker, TopItems, UserRanker

WriteTable = Callable[[pa.Table], None]

_ROW_GROUP_ROWS = 131_072
_FORMULA = r"^([=+\-@\t\r\n＝＋－＠])"
_PART = re.compile(r"part-\d{5,}-of-\d{5,}\.\w+")


@dataclass(frozen=True)
class Output:
    """A file to write lists to, or a directory; raises SettingError where that cannot be."""

    path: Path
    overwrite: bool
    spreadsheet_safe: bool
    """Text that a spreadsheet would compute gets an apostrophe in front; for CSV alone."""
    is_directory: bool
    """A directory holds part files, which together are what one file would be."""

    @classmethod
    def of(cls, output: Path | str, *, overwrite: bool, spreadsheet_safe: bool) -> Output:
        """The output that is named: a directory by a / at its end."""
        path = checked("output", output, Path)
        is_directory = isinstance(output, str) and output.endswith(("/", os.sep))
        return cls(path, overwrite, spreadsheet_safe, is_directory)

    @property
    def ending(self) -> str:
        """That of the files, which is their format: of part files Parquet unless it is named."""
        has_format = self.path.suffix in _WRITERS or not self.is_directory
        return self.path.suffix if has_format else ".parquet"

    def __post_init__(self) -> None:
        check_settings(self)
        path = self.path
        if self.ending not in _WRITERS:
            raise SettingError(
                f"output {path} must end in {', '.join(_WRITERS)}: the ending chooses the format; "
                "or in / for a directory of part files"
            )
        if not path.parent.is_dir():
            raise SettingError(f"output {path}: there is no directory {path.parent}")
        if self.is_directory:
            self._check_directory()
        elif path.is_dir():
            raise SettingError(f"output {path} is a directory; name a file in it")
        if not self.overwrite and path.exists() and not is_empty_directory(path):
            raise self._exists()

    def _exists(self) -> SettingError:
        return SettingError(
            f"output {self.path} exists already; replace it with --overwrite (overwrite=True in "
            "Python) or name another"
        )

    def _check_directory(self) -> None:
        """SettingError unless all that would be replaced is part files."""
        if self.path.exists() and not self.path.is_dir():
            raise SettingError(f"output {self.path}/ is a file; name another directory")
        others = [file.name for file in self.path.glob("*") if not _PART.fullmatch(file.name)]
        if others:
            raise SettingError(
                f"output {self.path}/ holds {min(others)!r}, which is no part file, and would lose "
                "it; name another directory"
            )

    @contextmanager
    def writer(self, schema: pa.Schema, writing: Writing) -> Iterator[WriteTable]:
        """Yield what appends a table; the output appears, whole, when the block ends well.

        SettingError where something is there by then that is not to be replaced.
        """
        path = self.path
        writing.check(self)
        try:
            with (
                (
                    writing.part_file(self)
                    if self.is_directory
                    else atomic_file(path, replace=self.overwrite)
                ) as file,
                _WRITERS[self.ending](file, schema) as write,
            ):
                if self.spreadsheet_safe and self.ending == ".csv":
                    yield lambda table: write(without_formulas(table))
                else:
                    yield write
        except FileExistsError as error:
            raise self._exists() from error
        except OSError as error:
            # What the error says of its file is about a temporary one.
            reason = os.strerror(error.errno) if error.errno else error
            raise SettingError(f"output {path} cannot be written: {reason}") from error

    def new_directory(self) -> AbstractContextManager[Path]:
        """The directory of part files, which takes its place when the block ends well."""
        return atomic_directory(self.path, replace=self.overwrite)

    def part_name(self, number: int, num_parts: int) -> str:
        """The name of one of so many part files."""
        return f"part-{number:05d}-of-{num_parts:05d}{self.ending}"


class Writing:
    """How lists are written: by this process, all of them.

    `foretaste.distributed.lists.SharedWriting` has several processes write some each.
    """

    num_processes = 1

    def check(self, output: Output) -> None:
        """SettingError where an output cannot be written so."""

    def own(self, batches: Sequence[slice]) -> Sequence[slice]:
        """Those of the batches whose lists are written here."""
        return batches

    @contextmanager
    def part_file(self, output: Output) -> Iterator[Path]:
        """Yield the file to write, where the output is a directory."""
        with output.new_directory() as directory:
            yield directory / output.part_name(0, 1)

    def total(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts of what was written, in all."""
        return counts


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
    """Users, or items of `similar_all`, with a list."""
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
    elapsed_s: float = 0.0
    """Seconds that it took to make and write them."""
    num_processes: int = 1
    """Processes that wrote."""

    def speed(self, kind: str) -> str:
        """A line on how long the lists of so many of a kind, "user" or "item", took."""
        rate = compact(self.num_users / max(self.elapsed_s, 1e-9))
        by = f" on {self.num_processes} ranks" if self.num_processes > 1 else ""
        lists = counted(self.num_users, kind)
        return f"{lists} in {self.elapsed_s:.3g} s{by}: {rate} {kind}s/s"


_COUNTS = ("num_rows", "num_short_lists", "num_popularity_lists", "num_partial_histories")
"""Fields of an `Export` that are sums over its lists."""


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
    with writing_here() as writing:
        batches = writing.own(list(ranker.batches(len(about))))
        num_own, num_done = sum(rows.stop - rows.start for rows in batches), 0
        counts = np.zeros(len(_COUNTS), dtype=np.int64)
        with output.writer(schema, writing) as write:
            for rows in batches:
                top = rank(rows)
                write(_lists_table(about[rows], items, top, schema))
                counts += _counts(top, ranker.k)
                num_done += rows.stop - rows.start
                if progress is not None:  # the part that is done of the own stands for all
                    progress(len(about) * num_done // num_own, len(about))
        return Export(
            path=output.path,
            num_users=len(about),
            notes=notes + ranker.notes,
            elapsed_s=time.perf_counter() - started,
            num_processes=writing.num_processes,
            **dict(zip(_COUNTS, writing.total(counts).tolist(), strict=True)),
        )


@contextmanager
def writing_here() -> Iterator[Writing]:
    """Yield how lists are written: by the processes of `torchrun` where it started them.

    Raises what `foretaste.distributed.launch.joined` raises.
    """
    # The one place where recommending looks at other processes.
    from foretaste.distributed.lists import writing_of_ranks

    with writing_of_ranks() as writing:
        yield writing


def _counts(top: TopItems, k: int) -> list[int]:
    """The `_COUNTS` of some lists."""
    is_known = top.num_known > 0
    has_remarks = np.array([bool(remarks) for remarks in top.remarks], dtype=bool)
    each = (top.length < k, ~is_known, is_known & has_remarks)
    return [int(top.length.sum()), *(int(np.count_nonzero(found)) for found in each)]


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
