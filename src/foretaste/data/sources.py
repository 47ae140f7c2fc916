"""Where raw rows come from: files and frames, each as a relation DuckDB can scan."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste.data.csv_files import find_value, read_header
from foretaste.data.manifest import file_sha256
from foretaste.errors import InputError

Storage = Literal["text", "integer", "real", "moment", "other"]

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat")
_PARQUET_SUFFIXES = (".parquet", ".pq")
_COMPRESSED_SUFFIXES = (".gz", ".zst")


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One column as it is stored."""

    sql: str
    """How a query names it."""

    storage: Storage
    """What it holds before any cast; text in a CSV file."""

    type_name: str
    """The stored type as a person would name it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan:
    """Rows of one file or frame."""

    name: str
    """The file's path, or a word for the frame."""

    relation: str
    """What stands after FROM."""

    columns: dict[str, Column]
    """Every column by the name it has in the source."""

    size: int
    """Bytes of the file, or of the frame in memory."""

    path: Path | None = None
    delimiter: str | None = None
    """What separates fields; None where the file is not delimited text."""

    frame: pa.Table | None = field(default=None, repr=False)

    def locate(self, column: str, value: str | None) -> str:
        """Where a column first has this value, as ``file, line 3`` where lines can be told."""
        if self.path is None or self.delimiter is None:
            return self.name
        position = list(self.columns).index(column)
        line = find_value(self.path, self.delimiter, position, value)
        return self.name if line is None else f"{self.name}, line {line}"

    def provenance(self) -> dict[str, Any]:
        """The source's name, size and checksum."""
        sha256 = _frame_sha256(self.frame) if self.path is None else file_sha256(self.path)
        return {"path": self.name, "num_bytes": self.size, "sha256": sha256}


def open_scans(source: Any) -> list[Scan]:
    """A scan of every file that a path, a pattern or a sequence of them names, or of a frame.

    Frames are pyarrow Tables, pandas DataFrames and whatever else hands out Arrow data.
    Raises InputError naming what is missing, empty or of a format that is not read.
    """
    if isinstance(source, str | Path):
        return [_open_file(path) for path in _expand(source)]
    if isinstance(source, Sequence):
        scans = [scan for part in source for scan in open_scans(part)]
        if not scans:
            raise InputError("source is an empty sequence; name at least one file")
        return scans
    return [_scan_frame(_to_arrow(source))]


def _expand(source: str | Path) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        raise InputError(
            f"{path}: is a directory; name its files, for example '{path}/*.csv' in quotes"
        )
    # Path.glob takes no absolute patterns.
    found = sorted(Path(name) for name in glob.glob(str(source), recursive=True))  # noqa: PTH207
    files = [match for match in found if match.is_file()]
    if not files:
        raise InputError(f"{source}: there is no such file")
    return files


def _open_file(path: Path) -> Scan:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PARQUET_SUFFIXES:
        return _scan_parquet(path)
    if suffixes and suffixes[-1] in _COMPRESSED_SUFFIXES:
        suffixes.pop()
    if suffixes and suffixes[-1] in _TEXT_SUFFIXES:
        return _scan_csv(path)
    known = ", ".join((*_TEXT_SUFFIXES, *_PARQUET_SUFFIXES))
    raise InputError(
        f"{path}: cannot tell its format by its name; expected {known}, "
        f"text also with {' or '.join(_COMPRESSED_SUFFIXES)}"
    )


def _scan_csv(path: Path) -> Scan:
    delimiter, names = read_header(path)
    # Columns go by position: names that differ in case only are one name to DuckDB.
    columns = {
        name: Column(sql=f"c{position}", storage="text", type_name="text")
        for position, name in enumerate(names)
    }
    declared = ", ".join(f"{column.sql}: 'VARCHAR'" for column in columns.values())
    relation = (
        f"read_csv({_literal(path)}, auto_detect=false, strict_mode=true, header=true, "
        f"delim={quoted(delimiter)}, quote='\"', escape='\"', columns={{{declared}}})"
    )
    return Scan(
        name=str(path), relation=relation, columns=columns, size=path.stat().st_size,
        path=path, delimiter=delimiter,
    )  # fmt: skip


def _scan_parquet(path: Path) -> Scan:
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
    return Scan(
        name=str(path), relation=f"read_parquet({_literal(path)})",
        columns=_describe(schema, str(path)), size=path.stat().st_size, path=path,
    )  # fmt: skip


def _scan_frame(table: pa.Table) -> Scan:
    plain = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    table = pa.table(plain, names=table.column_names)
    return Scan(
        name="table", relation=f"frame_{id(table)}", columns=_describe(table.schema, "table"),
        size=table.nbytes, frame=table,
    )  # fmt: skip


def _to_arrow(source: Any) -> pa.Table:
    try:
        if isinstance(source, pa.Table):
            return source
        if hasattr(source, "iloc"):
            return pa.Table.from_pandas(source, preserve_index=False)
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(source)
    except pa.ArrowException as error:
        raise InputError(f"table: cannot be turned into an Arrow table: {error}") from None
    raise InputError(
        "source must be a path, a sequence of paths, a pandas DataFrame or a pyarrow Table; "
        f"got {type(source).__name__}"
    )


def _describe(schema: pa.Schema, where: str) -> dict[str, Column]:
    names = [name.lower() for name in schema.names]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InputError(
            f"{where}: column {min(repeated)!r} is there more than once, case aside; rename one"
        )
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
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "real"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    return "moment" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "other"


def _frame_sha256(table: pa.Table) -> str:
    """Of the frame as an Arrow stream: equal frames may differ in it, unequal ones do."""
    sink = _HashSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        writer.write_table(table)
    return sink.sha256.hexdigest()


class _HashSink:
    """A file that only remembers the checksum of what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


def identifier(name: str) -> str:
    """A column name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _literal(path: Path) -> str:
    """A path that DuckDB takes as itself and not as a pattern."""
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in str(path))
    return quoted(plain)
