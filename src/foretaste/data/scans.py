"""One file or frame of raw rows: its columns, and the relation that DuckDB reads them from."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.files import file_sha256
from foretaste._util.formatting import shown
from foretaste.data.config import SKIPPED, FileFormat
from foretaste.data.csv_files import compression_of, quoted, refuse_long_lines
from foretaste.data.dialects import Dialect, read_dialect, refuse_nul
from foretaste.data.directory import real_path
from foretaste.data.frames import frame_sha256
from foretaste.data.json_lines import JsonLines
from foretaste.data.refused import refuse_by_content
from foretaste.errors import InputError

Storage = Literal[
    "text", "integer", "real", "decimal", "wide",
    "moment", "moment_ns", "instant", "instant_ns", "other",
]  # fmt: skip
"""What a column holds: ``moment`` are times without a time zone, ``instant`` those with one, and
``_ns`` those to the nanosecond; ``wide`` are decimals of over 38 digits, which DuckDB has not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One column as it is stored."""

    sql: str
    """How a query names it."""

    storage: Storage
    """What it holds before any cast; text in a CSV file."""

    type_name: str
    """The stored type as a person would name it."""

    text: str | None = None
    """How a query names the text that ``sql`` makes times of."""

    time_format: str | None = None
    """How times are written in that text."""

    rounded: str | None = None
    """How a query names whether a number lost digits as it became text; None where none can."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan:
    """Rows of one file or frame."""

    name: str
    """The file's path, or a word for the frame."""

    relation: str
    """What stands after FROM."""

    columns: dict[str, Column]
    """Every column that may be read, by the name it has in the source."""

    size: int
    """Bytes of the file, or of the frame in memory."""

    path: Path | None = None

    modified_ns: int = 0
    """When the file was last written to."""

    dialect: Dialect | JsonLines | None = None
    """How the file is written, where it is text."""

    frame: pa.Table | None = field(default=None, repr=False)

    folders: dict[str, str] = field(default_factory=dict)
    """The folder that each column comes from which the file itself has not."""

    overruled: tuple[str, ...] = ()
    """Folders that name a column which the file has itself."""

    place: int = 0
    """Which part of a split that was brought along the rows belong to; training is 0."""

    @property
    def header(self) -> FileFormat | None:
        """What was said of the text file whose first line the column names are; None where they
        come from elsewhere."""
        if self.dialect is None or not self.dialect.has_header:
            return None
        return self.dialect.said

    def locate(self, column: str, value: str | None) -> str:
        """Where a column first has this value, as ``file, line 3`` where lines can be told.

        Raises InputError where the file cannot be read again.
        """
        if self.path is None or self.dialect is None or column in self.folders:
            return self.name
        self.check_unchanged()
        try:
            line = self.dialect.find(self.path, column, value)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        return self.name if line is None else f"{self.name}, line {line}"

    def check_lines(self) -> None:
        """Raise InputError for the first line that cannot be read, where the engine names none."""
        if self.path is not None and isinstance(self.dialect, JsonLines):
            with suppress(OSError):
                deque(self.dialect.objects(self.path), maxlen=0)

    def check_lengths(self) -> None:
        """Raise InputError where a line is longer than lines may be."""
        if self.path is None or self.dialect is None:
            return
        try:
            refuse_long_lines(self.path, self.name, self.dialect.said.encoding)
        except (OSError, EOFError, pa.ArrowException) as error:
            raise InputError(f"{self.name}: cannot be read: {error}") from None

    def provenance(self) -> dict[str, Any]:
        """The source's name, size and checksum, what text is read as, and the folders that are
        columns of it."""
        try:
            sha256 = frame_sha256(self.frame) if self.path is None else file_sha256(self.path)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        described = {"path": self.name, "num_bytes": self.size, "sha256": sha256}
        if self.dialect is not None:
            described["read_as"] = self.dialect.read_as
        return described | ({"folders": "/".join(self.folders.values())} if self.folders else {})

    def check_unchanged(self) -> None:
        """Raise InputError where the file is no longer the one that was opened."""
        if self.path is not None and _state(self.path) != (self.size, self.modified_ns):
            raise InputError(
                f"{self.name}: changed while it was read; prepare it again when nobody writes to it"
            )


def scan_text(
    path: Path,
    format: FileFormat,
    read: Callable[[Path, FileFormat], Dialect | JsonLines] = read_dialect,
) -> Scan:
    size, modified_ns = _state(path)
    try:
        refuse_by_content(path)
    except OSError as error:
        raise _unreadable(str(path), error) from None
    dialect = read(path, format)
    columns = {
        name: Column(
            sql=f"c{position}",
            storage="text",
            type_name="text",
            rounded=f"r{position}" if isinstance(dialect, JsonLines) else None,
        )
        for position, name in enumerate(dialect.names)
        if name != SKIPPED or dialect.has_header
    }
    return Scan(
        name=str(path), relation=dialect.relation(_literal(path), compression_of(path)),
        columns=columns, size=size, modified_ns=modified_ns, path=path, dialect=dialect,
    )  # fmt: skip


def scan_parquet(path: Path) -> Scan:
    size, modified_ns = _state(path)
    try:
        schema = pq.read_schema(real_path(path))
        _ = schema.names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
    return Scan(
        name=str(path), relation=f"read_parquet({_literal(path)}, hive_partitioning=false, "
        # Otherwise nanoseconds of this old type are cut.
        "int96_as='timestamp_ns')",
        columns=_describe(schema, str(path)), size=size, modified_ns=modified_ns, path=path,
    )  # fmt: skip


def scan_frame(table: pa.Table) -> Scan:
    return Scan(
        name="table", relation=f"frame_{id(table)}", columns=_describe(table.schema, "table"),
        size=table.nbytes, frame=table,
    )  # fmt: skip


def _state(path: Path) -> tuple[int, int]:
    """Size and time of the last change: what tells that a file is still the same."""
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(str(path), error) from None
    return status.st_size, status.st_mtime_ns


def _unreadable(name: str, error: OSError) -> InputError:
    return InputError(f"{name}: cannot be read: {error.strerror or error}")


def _describe(schema: pa.Schema, where: str) -> dict[str, Column]:
    names = Counter(name.lower() for name in schema.names)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise InputError(
            f"{where}: column {shown(min(repeated))} is there more than once, case aside; "
            "rename one"
        )
    refuse_nul(schema.names, where)
    return {
        column.name: Column(
            sql=identifier(column.name),
            storage=_storage(column.type),
            type_name=str(column.type),
        )
        for column in schema
    }


def _storage(kind: pa.DataType) -> Storage:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_decimal(kind):
        return "decimal" if kind.precision <= 38 else "wide"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_timestamp(kind):
        return _time_storage(is_zoned=kind.tz is not None, is_fine=kind.unit == "ns")
    return "moment" if pa.types.is_date(kind) else "other"


def _time_storage(*, is_zoned: bool, is_fine: bool) -> Storage:
    if is_zoned:
        return "instant_ns" if is_fine else "instant"
    return "moment_ns" if is_fine else "moment"


def identifier(name: str) -> str:
    """A column name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _literal(path: Path) -> str:
    """A path that DuckDB takes as itself and not as a pattern."""
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in real_path(path))
    # In a pattern, and only there, DuckDB takes a backslash for a slash.
    if "[" in plain and "\\" in plain:
        raise InputError(
            f"{path}: is a path with a backslash and *, ? or [ in it, which cannot be read; rename "
            "it or its folder"
        )
    return quoted(plain)
