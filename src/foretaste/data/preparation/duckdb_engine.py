"""DuckDB, set up for a preparation: no network, results that do not depend on threads or memory."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb

from foretaste._util.files import real_path
from foretaste._util.system import free_bytes
from foretaste.data.config import memory_bytes
from foretaste.data.manifest import TRAIN_FILE
from foretaste.data.preparation.casts import Spellings
from foretaste.data.preparation.engine import Engine, FoundRows, Row
from foretaste.data.sources.arrow import Frame
from foretaste.data.sources.source import Source, sql_literal
from foretaste.data.sources.text import TextFile
from foretaste.errors import InputError, SettingError

# Errors that values can cause: damaged files, dates out of range, odd types. All other errors are
# faults of foretaste and stay tracebacks.
_DATA_ERRORS = (
    duckdb.InvalidInputException,
    duckdb.IOException,
    duckdb.DataError,
    duckdb.NotSupportedError,
    duckdb.InternalError,
    duckdb.SerializationException,
)

# DuckDB's messages for a full disk: a file that it writes cannot grow, and it cannot spill.
_CANNOT_WRITE = re.compile(r'Could not write file .*?: ([^":]+)","errno":"(\d+)"')
_CANNOT_SPILL = "max_temp_directory_size"

# The process held 260 to 300 MiB more than DuckDB's limit, for limits from 0.5 to 2 GB.
_BESIDE_ENGINE_BYTES = 300 * 2**20
_LEAST_BYTES = 64 * 2**20
"""Smallest default limit. A small file needs no more, and the free memory keeps changing."""


class DuckDBEngine(Engine):
    """One in-memory database that spills to ``scratch`` and disappears when closed."""

    # DuckDB was the fastest: for 20 million rows of CSV, DuckDB took 4.1 s, Polars 5.0 s, Ibis on
    # DuckDB 5.3 s, pandas 23.8 s; for 100 million rows of Parquet under 2 GB, DuckDB 27 s, Polars
    # 82 s.
    name = f"duckdb {duckdb.__version__}"

    sql = Spellings(
        each="unnest({values})",
        split="string_split({text}, {mark})",
        matches="regexp_full_match({text}, '{pattern}')",
        num_bytes="strlen({text})",
        # The cast rounds nanoseconds. The type must match: with TIMESTAMP for times with a zone, 20
        # million casts took 12 s in place of 0.6 s, and nanoseconds with a zone became NULL.
        micros="epoch_us(TRY_CAST({value} AS {type}))",
    )

    def __init__(
        self, scratch: Path, memory_limit: str | None = None, threads: int | None = None
    ) -> None:
        self._num_copies = 0
        self._num_rows: dict[str, int] = {}
        self._scratch = scratch
        options: dict[str, str | int | bool] = {
            "temp_directory": real_path(scratch),
            # A kept order takes memory (the process reached 2.4 GB under a limit of 2 GB). Without
            # a kept order only COPY with ORDER BY sorts: rows fetched as Arrow were unsorted, 6
            # times of 6.
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "python_enable_replacements": False,
            "TimeZone": "UTC",
        }
        if threads is not None:
            options["threads"] = threads
        self._connection = duckdb.connect(":memory:", config=options)
        # A notebook without widgets has no progress bar, and setting one is an error.
        if self.row("SELECT current_setting('enable_progress_bar')") == (True,):
            self._connection.execute("SET enable_progress_bar = false")
        # Statistics may be wrong: IS NOT NULL dropped all rows if a page index called all values
        # NULL.
        self._connection.execute("SET parquet_use_page_index = false")
        # Without this setting an unread geometry with an incomplete description refuses the file.
        self._connection.execute("SET enable_geoparquet_conversion = false")
        if memory_limit is None:
            # DuckDB's own default limit is four fifths of the memory of the machine or its
            # container. The limit here is half of that memory, or less if other processes leave
            # less.
            (found,) = self.row("SELECT current_setting('memory_limit')")
            half = min(memory_bytes(found) / 0.8 / 2, free_bytes())
            memory_limit = f"{max(_LEAST_BYTES, half) / 2**20:.0f}MiB"
        self._memory_limit = memory_limit
        num_bytes = memory_bytes(self._memory_limit)
        engine_bytes = int(max(num_bytes - _BESIDE_ENGINE_BYTES, num_bytes / 2))
        self._connection.execute(f"SET memory_limit = '{engine_bytes}B'")

    def __enter__(self) -> DuckDBEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def register(self, sources: Sequence[Source]) -> list[Source]:
        registered = list(sources)
        for number, source in enumerate(sources):
            if isinstance(source, TextFile):
                source.check_last_line()
                registered[number] = source.readable(self._scratch / f"{self._num_copies}.utf-8")
                self._num_copies += 1
            if isinstance(source, Frame):
                try:
                    self._connection.register(source.relation, source.table)
                except _DATA_ERRORS as error:
                    problem = _first_line(str(error))
                    raise InputError(f"{source.name}: cannot be read: {problem}") from None
        return registered

    def run(self, sql: str) -> list[Row]:
        try:
            return list(self._connection.execute(sql).fetchall())
        except duckdb.OutOfMemoryException as error:
            if _CANNOT_SPILL in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
            raise SettingError(
                f"memory_limit {self._memory_limit} is too little for this input; allow more or "
                "use fewer threads"
            ) from None
        except _DATA_ERRORS as error:
            if found := _CANNOT_WRITE.search(str(error)):
                raise OSError(int(found.group(2)), found.group(1)) from None
            raise InputError(_first_line(str(error))) from None
        except duckdb.Error as error:
            # Damaged Parquet raises the base class itself.
            if type(error) is duckdb.Error:
                raise InputError(f"is damaged: {_first_line(str(error))}") from None
            raise
        except UnicodeDecodeError as error:
            # DuckDB's message quotes bytes that are no text, and Python cannot decode the message.
            raise InputError(
                f"holds bytes that are not UTF-8 text: {error.object!r:.200}"
            ) from None
        except RuntimeError as error:
            # DuckDB turns Ctrl-C during a query into this error.
            if str(error) == "Query interrupted":
                raise KeyboardInterrupt from None
            raise

    def find_rows(self, source: Source, where: str, value: str) -> FoundRows:
        # A table scan numbers rows in their order only if that order is kept.
        self.run("SET preserve_insertion_order = true")
        fits = f"{where} AND {source.condition}" if source.condition else where
        count, row, num_rows, first = self.row(
            f"SELECT count(CASE WHEN fits THEN 1 END), min(CASE WHEN fits THEN nth END), count(*), "
            f"arg_min(struct_pack(value), CASE WHEN fits THEN nth END) FROM ("
            f"SELECT row_number() OVER () AS nth, {fits} AS fits, {value} AS value "
            f"FROM {source.relation})"
        )
        self.run("SET preserve_insertion_order = false")
        place = source.place(row, num_rows) if count else source.name
        return FoundRows(count=count, place=place, value=first and first["value"])

    def make(self, table: str, query: str) -> None:
        (self._num_rows[table],) = self.row(f"CREATE TABLE {table} AS {query}")

    def define(self, view: str, query: str) -> None:
        self.run(f"CREATE VIEW {view} AS {query}")

    def drop(self, table: str) -> None:
        self.run(f"DROP TABLE {table}")
        del self._num_rows[table]

    def rename(self, table: str, name: str) -> None:
        self.run(f"ALTER TABLE {table} RENAME TO {name}")
        self._num_rows[name] = self._num_rows.pop(table)

    def count(self, relation: str) -> int:
        # CREATE TABLE returned the number of rows of a whole table.
        known = self._num_rows.get(relation)
        return super().count(relation) if known is None else known

    def write(self, query: str, path: Path) -> None:
        self.run(f"COPY ({query}) TO {sql_literal(real_path(path))} (FORMAT parquet)")

    def write_train(self, query: str, directory: Path, num_rows: int) -> list[str]:
        self.write(query, directory / TRAIN_FILE)
        return [TRAIN_FILE]


def _first_line(message: str) -> str:
    if "CSV Parser state machine" in message:
        return r"mixes line endings, \n and \r\n; make them one, for example with dos2unix"
    return re.sub(r"^.*Error: ", "", message.strip().split("\n", 1)[0])
