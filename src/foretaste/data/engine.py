"""DuckDB, set up for preparing: no network, results that do not depend on threads or memory."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from foretaste._util.memory import address_space_left, free_bytes, require_memory
from foretaste.data.config import FileFormat, memory_bytes
from foretaste.data.csv_files import explain
from foretaste.data.directory import real_path
from foretaste.data.scans import Scan
from foretaste.errors import InputError, SettingError

NAME = f"duckdb {duckdb.__version__}"

# What values can bring about, as damaged files, dates out of range and odd types do. The others are
# mistakes of our own.
_DATA_ERRORS = (
    duckdb.InvalidInputException,
    duckdb.IOException,
    duckdb.DataError,
    duckdb.NotSupportedError,
    duckdb.InternalError,
    duckdb.SerializationException,
)

# What the engine says where a file of its own cannot grow, and where it cannot spill.
_CANNOT_WRITE = re.compile(r'Could not write file .*?: ([^":]+)","errno":"(\d+)"')
_CANNOT_SPILL = "max_temp_directory_size"

# The process held 260 to 300 MiB more than DuckDB's limit, for limits from 0.5 to 2 GB.
_MAPPED_BY_THREAD = 128 * 2**20
"""Address space, not memory, that the C library maps for each thread's stack and heap."""
_BESIDE_ENGINE_BYTES = 300 * 2**20
_LEAST_BYTES = 64 * 2**20
"""Taken unasked however little is free: a small file needs no more, and what is free changes."""


class Engine:
    """One in-memory database that spills to ``scratch`` and is gone when closed."""

    def __init__(self, scratch: Path, memory_limit: str | None, threads: int | None) -> None:
        self._files: dict[str, tuple[str, FileFormat]] = {}
        self._scratch = scratch
        options: dict[str, Any] = {
            "temp_directory": real_path(scratch),
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "python_enable_replacements": False,
            "TimeZone": "UTC",
        }
        if (most := _most_threads(threads)) is not None:
            options["threads"] = most
        self._connection = duckdb.connect(":memory:", config=options)
        self._connection.execute("SET enable_progress_bar = false")
        self._memory_limit = memory_limit or self._half_of_memory()
        self._connection.execute(f"SET memory_limit = '{_engine_bytes(self._memory_limit)}B'")

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def know(self, scan: Scan) -> None:
        """Make a scan's relation known, where it is a frame; else how the file is written.

        Raises InputError where a column is of a type that cannot be read, or a line of a file is
        longer than is read whole.
        """
        if scan.path is not None and scan.dialect is not None:
            scan.check_lengths()
            self._files[real_path(scan.path)] = (scan.name, scan.dialect.said)
        if scan.frame is None:
            return
        try:
            self._connection.register(scan.relation, scan.frame)
        except _DATA_ERRORS as error:
            raise InputError(f"{scan.name}: cannot be read: {_first_line(str(error))}") from None

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows a statement returns, in no order that can be relied on.

        Raises InputError naming file and line of malformed input, SettingError where the
        memory limit is too tight, OSError where the disk is full.
        """
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
            explained = explain(str(error), self._files)
            raise InputError(explained or _first_line(str(error))) from None
        except duckdb.Error as error:
            # Damaged Parquet makes errors of no kind of their own.
            if type(error) is duckdb.Error:
                raise InputError(f"is damaged: {_first_line(str(error))}") from None
            raise
        except UnicodeDecodeError as error:
            # The message quotes bytes that are not text.
            raise InputError(
                f"holds bytes that are not UTF-8 text: {error.object!r:.200}"
            ) from None
        except RuntimeError as error:
            # What DuckDB makes of Ctrl-C while a query runs.
            if str(error) == "Query interrupted":
                raise KeyboardInterrupt from None
            raise

    def _half_of_memory(self) -> str:
        """Half of the memory that the machine has, or that a container or job may take; less where
        less is free."""
        # DuckDB knows how much that is: its own limit is four fifths of it, which other processes
        # and what lies beside it may leave too little room for.
        (found,) = self.row("SELECT current_setting('memory_limit')")
        num_bytes = min(memory_bytes(found) / 0.8 / 2, free_bytes())
        return f"{max(_LEAST_BYTES, num_bytes) / 2**20:.0f}MiB"

    def make(self, table: str, query: str) -> None:
        """Keep the result of a query as a table."""
        self.run(f"CREATE TABLE {table} AS {query}")

    def drop(self, table: str) -> None:
        """Forget a table, and free its memory."""
        self.run(f"DROP TABLE {table}")

    def row(self, sql: str) -> tuple[Any, ...]:
        """The one row that a query returns."""
        (row,) = self.run(sql)
        return row

    def first(self, sql: str) -> tuple[Any, ...]:
        """The first row that a query without an order returns, in the order of the source."""
        self.run("SET preserve_insertion_order = true")
        (row,) = self.run(f"{sql} LIMIT 1")
        self.run("SET preserve_insertion_order = false")
        return row

    def count(self, relation: str) -> int:
        """The number of rows of a table."""
        return int(self.row(f"SELECT count(*) FROM {relation}")[0])


def _most_threads(asked: int | None) -> int | None:
    """The threads to run with, None for one on each core; UnsupportedError where too many are
    asked for. DuckDB ends the process where one cannot be started."""
    left = address_space_left()
    if asked is None:
        has_room = (os.cpu_count() or 1) * _MAPPED_BY_THREAD <= left
        return None if has_room else max(1, left // _MAPPED_BY_THREAD)
    require_memory(asked * _MAPPED_BY_THREAD, left, f"running {asked} threads", "lower threads")
    return asked


def _engine_bytes(memory_limit: str) -> int:
    """What of a limit on the process is left for DuckDB; half of it if that is more."""
    num_bytes = memory_bytes(memory_limit)
    return int(max(num_bytes - _BESIDE_ENGINE_BYTES, num_bytes / 2))


def _first_line(message: str) -> str:
    return re.sub(r"^.*Error: ", "", message.strip().split("\n", 1)[0])
