"""Sources as Spark reads them, a temporary view of each: local files, and what Spark names."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlparse
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from foretaste._util.files import real_path
from foretaste._util.formatting import shown
from foretaste.data.config import FileFormat
from foretaste.data.sources import PARQUET_SUFFIXES, TABLE, open_sources
from foretaste.data.sources.json_lines import JsonLinesFile
from foretaste.data.sources.source import (
    READ_COMPRESSIONS,
    Column,
    Source,
    Storage,
    identifier,
)
from foretaste.data.sources.text import TextFile, not_utf8
from foretaste.errors import InputError

_CORRUPT = "corrupt"
_LINES_OF_HEAD = 1001
_STORAGE: dict[str, Storage] = {
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "real"),
    **dict.fromkeys(("date", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
    "timestamp": "instant",
}  # fmt: skip
_ENCODINGS = {"utf-8": "UTF-8", "latin-1": "ISO-8859-1", "utf-16": "UTF-16"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Named(Source):
    """Rows of files or of a table that Spark names; lines of them are not known."""

    state: str
    """Digest of the names, sizes and times of change of the files."""

    written_as: str = ""

    first_line: FileFormat | None = None

    @property
    def read_as(self) -> str:
        return self.written_as

    @property
    def header(self) -> FileFormat | None:
        return self.first_line

    def sha256(self) -> str:
        """The digest of what the files are known by; their bytes are read once only."""
        return self.state


def registered(session: SparkSession, source: Source) -> Source:
    """The source with a view of Spark as its relation.

    Raises InputError for what is no row of the file.
    """
    if isinstance(source, Named):
        return source
    place = _uri(source.path)
    columns = source.columns
    if isinstance(source, JsonLinesFile):
        rows, columns = _json_lines(session, source, place)
    elif isinstance(source, TextFile):
        rows = _text(session, source, place)
    else:
        rows = session.read.parquet(place)
    return replace(source, relation=_view(rows), columns=columns)


def open_named(session: SparkSession, name: str, format: FileFormat) -> Named:
    """The table of Spark's catalogue, or the files, that a name such as ``table:shop.plays`` or
    ``s3a://bucket/plays`` stands for.

    Of several files of text the first says how all are written. Raises InputError where there are
    none, or none that can be read.
    """
    if name.startswith(TABLE):
        rows = session.table(name.removeprefix(TABLE))
        files = rows.inputFiles()
        return _typed(name, rows, _listed(session, files) if files else _summed(rows))
    listed = _listed(session, [name])
    first = Path(urlparse(listed[0][0]).path)
    if first.suffix.lower() in PARQUET_SUFFIXES:
        return _typed(name, session.read.parquet(name), listed)
    # Its first lines, decompressed, show what the whole would.
    lines = session.read.text(listed[0][0]).limit(_LINES_OF_HEAD).collect()
    with TemporaryDirectory() as folder:
        packed = first.suffix.lower() in READ_COMPRESSIONS
        head = Path(folder) / (first.stem if packed else first.name)
        head.write_text("".join(f"{line}\n" for (line,) in lines), encoding=format.encoding)
        try:
            (source,) = open_sources(head, format)
        except InputError as error:
            raise InputError(str(error).replace(str(head), name)) from None
    assert isinstance(source, TextFile)
    source, columns = replace(source, name=name), source.columns
    if isinstance(source, JsonLinesFile):
        rows, columns = _json_lines(session, source, name)
    else:
        rows = _text(session, source, name)
    return Named(
        name=name, relation=_view(rows), columns=columns, size=sum(size for _, size, _ in listed),
        state=_digest(listed), written_as=source.read_as, first_line=source.header,
    )  # fmt: skip


def _typed(name: str, rows: DataFrame, listed: list[tuple[str, int, str]]) -> Named:
    """A source of rows whose columns have types."""
    columns = {
        field.name: Column(
            sql=identifier(field.name),
            storage=_STORAGE.get(field.dataType.typeName(), "other"),
            type_name=field.dataType.simpleString(),
        )
        for field in rows.schema
    }
    size = sum(size for _, size, _ in listed)
    return Named(name=name, relation=_view(rows), columns=columns, size=size, state=_digest(listed))


def _listed(session: SparkSession, names: list[str]) -> list[tuple[str, int, str]]:
    """Path, size and time of change of the files behind these names, in order."""
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    files = reader.load(names).selectExpr("path", "length", "CAST(modificationTime AS STRING)")
    found = sorted(tuple(file) for file in files.collect())
    if not found:
        raise InputError(f"{names[0]}: there are no files in it")
    return found


def _summed(rows: DataFrame) -> list[tuple[str, int, str]]:
    """A sum over the content of a table that is in no files."""
    num_rows, total = rows.select(
        f.count("*"), f.sum(f.xxhash64(*rows.columns).cast("decimal(38, 0)"))
    ).collect()[0]
    return [("", num_rows, str(total))]


def _digest(listed: list[tuple[str, int, str]]) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _view(rows: DataFrame) -> str:
    """The name of a new temporary view of these rows."""
    name = f"source_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    return name


def _uri(path: Path | None) -> str:
    """A path that Spark takes as itself and not as a pattern."""
    assert path is not None
    plain = "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in real_path(path))
    return f"file://{plain}"


def _text(session: SparkSession, source: TextFile, place: str) -> DataFrame:
    """Columns ``c0``, ``c1``, ... of text."""
    names = [f"c{position}" for position in range(len(source.names))]
    has_breaks = source.format.encoding == "utf-16"
    if not has_breaks:
        has_breaks = _check_lines(session, source, place)
    rows = (
        session.read.schema(", ".join(f"{name} STRING" for name in [*names, _CORRUPT]))
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _CORRUPT)
        .option("header", source.header is not None)
        .option("sep", source.delimiter)
        .option("quote", '"' if source.has_quotes else "")
        .option("escape", '"' if source.has_quotes else "")
        .option("encoding", _ENCODINGS[source.format.encoding])
        .option("multiLine", has_breaks)
        .csv(place)
    )
    # Spark does not read that column alone.
    corrupt = rows.where(f"{_CORRUPT} IS NOT NULL").select(_CORRUPT, "c0").limit(1).collect()
    if corrupt:
        # What Spark names is not here to be read again.
        if source.path.exists():
            source.check_rows()
        raise InputError(f"{source.name}: a row cannot be parsed: {shown(corrupt[0][0])}")
    return rows.select(names)


def _check_lines(session: SparkSession, source: TextFile, place: str) -> bool:
    """True where a quoted field may have line breaks; InputError for a line that is not text."""
    lines = session.read.text(place)
    is_text = "true" if source.format.encoding != "utf-8" else "is_valid_utf8(value)"
    num_quotes = "length(value) - length(replace(value, '\"', ''))"
    bad, odd = lines.select(
        f.expr(f"count_if(NOT {is_text})"), f.expr(f"count_if(({num_quotes}) % 2 = 1)")
    ).collect()[0]
    if bad:
        line = f", line {source.first_line_not_text()}" if source.path.exists() else ""
        raise InputError(f"{source.name}{line}: {not_utf8(source.format)}")
    return bool(odd) and source.has_quotes


def _json_lines(
    session: SparkSession, source: JsonLinesFile, place: str
) -> tuple[DataFrame, dict[str, Column]]:
    """A column of text for each key, of numbers as they are written."""
    columns = {
        key: column if key in source.folders else replace(column, rounded=None)
        for key, column in source.columns.items()
    }
    keys = [key for key in columns if key not in source.folders]
    fields = [StructField(key, StringType()) for key in [*keys, _CORRUPT]]
    rows = (
        session.read.schema(StructType(fields))
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _CORRUPT)
        .option("encoding", _ENCODINGS[source.format.encoding])
        .json(place)
    )
    corrupt = rows.where(f"{_CORRUPT} IS NOT NULL").limit(1).collect()
    if corrupt:
        if source.path.exists():
            source.check_lines()
        raise InputError(f"{source.name}: a line is not a JSON object: {shown(corrupt[0][-1])}")
    named = [rows[f"`{key}`"].alias(columns[key].sql) for key in keys]
    return rows.select(named), columns
