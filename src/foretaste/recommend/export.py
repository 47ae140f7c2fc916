"""Writer of the lists of many users, batch by batch: one file of Parquet, CSV or JSON lines, or a
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
    """A file or directory to write lists to; SettingError if it cannot be written."""

    path: Path
    overwrite: bool
    spreadsheet_safe: bool
    """True to prefix text that a spreadsheet would compute with an apostrophe; CSV only."""
    is_directory: bool
    """True for a directory of part files, which together have the rows of one file."""

    @classmethod
    def of(cls, output: Path | str, *, overwrite: bool, spreadsheet_safe: bool) -> Output:
        """The output of a path; a / at its end makes it a directory."""
        path = checked("output", output, Path)
        is_directory = isinstance(output, str) and output.endswith(("/", os.sep))
        return cls(path, overwrite, spreadsheet_safe, is_directory)

    @property
    def ending(self) -> str:
        """The ending of the files, which is their format; by default Parquet for part files."""
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
        """Raise SettingError if the directory holds anything but part files."""
        if self.path.exists() and not self.path.is_dir():
            raise SettingError(f"output {self.path}/ is a file; name another directory")
        others = [file.name for file in self.path.glob("*") if not _PART.fullmatch(file.name)]
        if others:
            raise SettingError(
                f"output {self.path}/ holds {min(others)!r}, which is no part file and would be "
                "lost; name another directory"
            )

    @contextmanager
    def writer(self, schema: pa.Schema, writing: Writing) -> Iterator[WriteTable]:
        """Yield a function that appends a table; the whole output appears at the end of the block.

        SettingError if another process has written the output meanwhile, unless ``overwrite``.
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
            # Without the error's own file name, which is that of a temporary file.
            reason = os.strerror(error.errno) if error.errno else error
            raise SettingError(f"output {path} cannot be written: {reason}") from error

    def new_directory(self) -> AbstractContextManager[Path]:
        """A context with a temporary directory, which becomes the output at its end."""
        return atomic_directory(self.path, replace=self.overwrite)

    def part_name(self, number: int, num_parts: int) -> str:
        """The name of part file ``number`` of ``num_parts``."""
        return f"part-{number:05d}-of-{num_parts:05d}{self.ending}"


class Writing:
    """Strategy of one process, which writes all lists.

    In `foretaste.distributed.lists.SharedWriting` each of several processes writes some of them.
    """

    num_processes = 1

    def check(self, output: Output) -> None:
        """Raise SettingError if an output cannot be written in this way."""

    def own(self, batches: Sequence[slice]) -> Sequence[slice]:
        """The batches that this process writes."""
        return batches

    @contextmanager
    def part_file(self, output: Output) -> Iterator[Path]:
        """Yield the file of this process in an output that is a directory."""
        with output.new_directory() as directory:
            yield directory / output.part_name(0, 1)

    def total(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of counts over all processes."""
        return counts


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
    """A table as the text of a `.csv` file; ``with_header`` adds the line of column names."""
    if spreadsheet_safe:
        table = without_formulas(table)
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=with_header))
    return str(sink.getvalue().to_pybytes(), "utf-8")


def without_formulas(table: pa.Table) -> pa.Table:
    """The table with an apostrophe before text that a spreadsheet would compute.

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
    """Number of users with a list; of `similar_all`, number of items."""
    num_rows: int = 0
    """Number of recommended items over all users."""
    num_short_lists: int = 0
    """Number of users with fewer than k items: the catalogue or the candidates ran out."""
    num_popularity_lists: int = 0
    """Number of users answered in popularity order: training saw nothing of their history, or the
    run does not know them."""
    num_partial_histories: int = 0
    """Number of users with given items that were ignored, as training never saw them."""
    notes: tuple[str, ...]
    """Remarks on the given ids and on the scores."""
    elapsed_s: float = 0.0
    """Seconds to make and write the lists."""
    num_processes: int = 1
    """Number of processes that wrote."""

    def speed(self, kind: str) -> str:
        """A line with the time and rate of the lists; ``kind`` is "user" or "item"."""
        rate = compact(self.num_users / max(self.elapsed_s, 1e-9))
        by = f" on {self.num_processes} ranks" if self.num_processes > 1 else ""
        lists = counted(self.num_users, kind)
        return f"{lists} in {self.elapsed_s:.3g} s{by}: {rate} {kind}s/s"


_COUNTS = ("num_rows", "num_short_lists", "num_popularity_lists", "num_partial_histories")
"""The fields of an `Export` that are sums over its lists."""


def write_lists(
    output: Output,
    about: pa.Table,
    items: IdTable,
    ranker: UserRanker | SimilarItemRanker,
    rank: Callable[[slice], TopItems],
    progress: Callable[[int, int], None] | None,
    notes: tuple[str, ...] = (),
) -> Export:
    """Write the lists that ``rank`` makes for the rows of ``about``, batch by batch.

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
                if progress is not None:  # the share of this process stands for that of all
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
    """Yield the strategy of writing: shared by the ranks of `torchrun`, if it started this process.

    Raises the errors of `foretaste.distributed.launch.joined`.
    """
    # The only place where recommending deals with other processes.
    from foretaste.distributed.lists import writing_of_ranks

    with writing_of_ranks() as writing:
        yield writing


def _counts(top: TopItems, k: int) -> list[int]:
    """The counts of some lists, in the order of `_COUNTS`."""
    is_known = top.num_known > 0
    has_remarks = np.array([bool(remarks) for remarks in top.remarks], dtype=bool)
    each = (top.length < k, ~is_known, is_known & has_remarks)
    return [int(top.length.sum()), *(int(np.count_nonzero(found)) for found in each)]


def _lists_table(about: pa.Table, items: IdTable, top: TopItems, schema: pa.Schema) -> pa.Table:
    """A table with one row per recommended item."""
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
