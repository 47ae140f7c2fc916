"""Where raw rows come from: files and frames, each as a relation DuckDB can scan."""

from __future__ import annotations

import glob
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.formatting import shown
from foretaste._util.regular import file_sha256
from foretaste.data.config import SKIPPED, FileFormat
from foretaste.data.csv_files import quoted
from foretaste.data.dialects import Dialect, read_dialect, refuse_nul
from foretaste.data.directory import is_name_text
from foretaste.data.frames import frame_sha256, refuse_rows, to_arrow
from foretaste.data.json_lines import JSON_SUFFIXES, JsonLines, read_json_lines
from foretaste.data.refused import READ_COMPRESSIONS, refuse_by_content, refuse_by_name
from foretaste.errors import InputError, SettingError

Storage = Literal["text", "integer", "real", "moment", "other"]

NCF_SUFFIX = ".rating"
"""Files as the NCF paper publishes them."""

_NCF_COLUMNS = ("user_id", "item_id", "rating", "timestamp")
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", NCF_SUFFIX)
_PARQUET_SUFFIXES = (".parquet", ".pq")


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
    """Every column that may be read, by the name it has in the source."""

    size: int
    """Bytes of the file, or of the frame in memory."""

    path: Path | None = None

    modified_ns: int = 0
    """When the file was last written to."""

    dialect: Dialect | JsonLines | None = None
    """How the file is written, where it is text."""

    frame: pa.Table | None = field(default=None, repr=False)

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
        if self.path is None or self.dialect is None:
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

    def provenance(self) -> dict[str, Any]:
        """The source's name, size and checksum."""
        try:
            sha256 = frame_sha256(self.frame) if self.path is None else file_sha256(self.path)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        return {"path": self.name, "num_bytes": self.size, "sha256": sha256}

    def check_unchanged(self) -> None:
        """Raise InputError where the file is no longer the one that was opened."""
        if self.path is not None and _state(self.path) != (self.size, self.modified_ns):
            raise InputError(
                f"{self.name}: changed while it was read; prepare it again when nobody writes to it"
            )


def open_scans(source: Any, format: FileFormat) -> list[Scan]:
    """A scan of every file that a path, a folder, a pattern or a sequence of them names, or of a
    frame; ``format`` says how those that are text are written.

    Frames are whatever `foretaste.data.frames.to_arrow` takes. Raises InputError naming what is
    missing, empty or of a format that is not read.
    """
    if isinstance(source, str | Path):
        paths = _expand(source)
        for path in paths:
            refuse_by_name(path)
        return [_open_file(path, format) for path in paths]
    if isinstance(source, Sequence):
        refuse_rows(source)
        scans = [scan for part in source for scan in open_scans(part, format)]
        if not scans:
            raise InputError("there is no source; name at least one file")
        return scans
    table = to_arrow(source)
    if not table.num_columns:
        raise InputError(
            "table: is empty; it must have a column of users and one of items, and a row for each "
            "interaction"
        )
    return [_scan_frame(table)]


def check_format_acts(format: FileFormat, scans: Sequence[Scan]) -> None:
    """Raise SettingError where ``format`` was given and no scan is of text."""
    if not format.is_default and all(scan.dialect is None for scan in scans):
        options = ", ".join(map(format.option, ("delimiter", "columns", "encoding")))
        raise SettingError(
            f"{options} and {format.option('quote')} are for text files, and {scans[0].name} is "
            "none; leave them out"
        )


def _expand(source: str | Path) -> list[Path]:
    path = Path(source)
    # Unlike those of Path, these raise nothing, however odd or long a name is.
    if os.path.isfile(path):  # noqa: PTH113
        return [path]
    if os.path.isdir(path):  # noqa: PTH112
        return _files_within(path)
    if os.path.exists(path):  # noqa: PTH110
        raise InputError(
            f"{source}: is neither a file nor a folder but a pipe, socket or device; save what it "
            "holds in a file"
        )
    # Path.glob takes no absolute patterns.
    found = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207
    files = [Path(name) for name in found if os.path.isfile(name)]  # noqa: PTH113
    if not files:
        raise InputError(f"{source}: there is no such file")
    return files


def _files_within(folder: Path) -> list[Path]:
    """Every file of a folder and the folders in it; ``.`` and ``_`` hide, as in ``_SUCCESS``, and
    datasets and runs are left out."""
    if (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: is a prepared dataset, not raw data; train on it as it is")
    if (folder / "metrics.jsonl").is_file():
        raise InputError(f"{folder}: is the directory of a run, which holds no raw data")
    paths = sorted(folder.rglob("*"))
    made = {path for path in paths if _is_made_here(path)}
    files = [
        path
        for path in paths
        if path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and made.isdisjoint(path.parents)
    ]
    if not files:
        found = "holds prepared datasets or runs, and no raw data"
        raise InputError(f"{folder}: {found if made else 'is a folder without files in it'}")
    return files


def _is_made_here(folder: Path) -> bool:
    """Whether it is a prepared dataset or a run, such as lie in ``datasets`` and ``runs``."""
    return any(
        all((folder / name).is_file() for name in names)
        for names in (("manifest.json", "items.parquet"), ("metrics.jsonl", "config.json"))
    )


def _open_file(path: Path, format: FileFormat) -> Scan:
    if not is_name_text(path):
        raise InputError(f"{path}: its name is not UTF-8 text; rename it")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PARQUET_SUFFIXES:
        return _scan_parquet(path)
    if suffixes and suffixes[-1] in READ_COMPRESSIONS:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    is_described = format.delimiter is not None or format.columns is not None
    if suffix == NCF_SUFFIX and not is_described:
        return _scan_text(path, replace(format, delimiter="\t", columns=_NCF_COLUMNS))
    if suffix in JSON_SUFFIXES and not is_described:
        return _scan_text(path, _whole_lines(format, "line"), read_json_lines)
    if suffix in _TEXT_SUFFIXES or (is_described and suffix not in _PARQUET_SUFFIXES):
        return _scan_text(path, format)
    known = ", ".join((*_TEXT_SUFFIXES, *JSON_SUFFIXES, *_PARQUET_SUFFIXES))
    raise InputError(
        f"{path}: cannot tell its format by its name; expected {known}, text also with "
        f"{' or '.join(READ_COMPRESSIONS)}. {format.option('delimiter')} says that it is text"
    )


def scan_lines(path: Path, name: str, format: FileFormat) -> Scan:
    """A scan of whole lines, as the one column ``name``."""
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"{path}: there is no such file")
    return _scan_text(path, _whole_lines(format, name))


def _whole_lines(format: FileFormat, name: str) -> FileFormat:
    return replace(format, delimiter="\x01", columns=(name,), quote="none")


def _scan_text(
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
        name: Column(sql=f"c{position}", storage="text", type_name="text")
        for position, name in enumerate(dialect.names)
        if name != SKIPPED or dialect.has_header
    }
    return Scan(
        name=str(path), relation=dialect.relation(_literal(path)), columns=columns,
        size=size, modified_ns=modified_ns, path=path, dialect=dialect,
    )  # fmt: skip


def _scan_parquet(path: Path) -> Scan:
    size, modified_ns = _state(path)
    try:
        schema = pq.read_schema(path)
        _ = schema.names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
    return Scan(
        name=str(path), relation=f"read_parquet({_literal(path)})",
        columns=_describe(schema, str(path)), size=size, modified_ns=modified_ns, path=path,
    )  # fmt: skip


def _scan_frame(table: pa.Table) -> Scan:
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
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "real"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    return "moment" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "other"


def identifier(name: str) -> str:
    """A column name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _literal(path: Path) -> str:
    """A path that DuckDB takes as itself and not as a pattern."""
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in str(path))
    return quoted(plain)
