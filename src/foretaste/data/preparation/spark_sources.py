"""Sources as Spark reads them, temporary views: of local files that are written alike, and of what
Spark names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlparse
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from foretaste._util.files import real_path
from foretaste.data.config import FileFormat
from foretaste.data.preparation.spark_sql import with_backslashes
from foretaste.data.sources import PARQUET_SUFFIXES, TABLE, open_sources
from foretaste.data.sources.json_lines import JsonLinesFile
from foretaste.data.sources.source import (
    READ_COMPRESSIONS,
    Column,
    Source,
    Storage,
    identifier,
    names_of,
    quoted,
)
from foretaste.data.sources.text import TextFile, not_utf8
from foretaste.errors import InputError

_FILE = "_metadata.file_path AS file_of_row"
_LINES_OF_HEAD = 1001
_STORAGE: dict[str, Storage] = {
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "real"),
    **dict.fromkeys(("date", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
    "timestamp": "instant",
}  # fmt: skip
_WITHOUT_NANOSECONDS: dict[Storage, Storage] = {"moment_ns": "moment", "instant_ns": "instant"}
_ENCODINGS = {"utf-8": "UTF-8", "latin-1": "ISO-8859-1", "utf-16": "UTF-16"}


@dataclass(frozen=True, kw_only=True, eq=False)
class View(Source):
    """Rows of a temporary view, in which ``file_of_row`` is the place of their file."""

    session: SparkSession

    files: Mapping[str, Source] = field(default_factory=dict)
    """The local files among them, by their path."""

    first_line: FileFormat | None = None

    @property
    def header(self) -> FileFormat | None:
        return self.first_line

    def locate(self, column: str, value: str | None) -> str:
        rows = self.session.table(self.relation)
        if column in self.folders or "file_of_row" not in rows.columns:
            return self.name
        text = self.columns[column].text or self.columns[column].sql
        same = "IS NULL" if value is None else f"= {quoted(value)}"
        where = with_backslashes(f"nullif(CAST({text} AS STRING), '') {same}")
        place = rows.where(where).agg(f.min("file_of_row")).collect()[0][0]
        if place is None:
            return self.name
        file = self.files.get(_named(place))
        return _named(place) if file is None else file.locate(column, value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Named(View):
    """Rows of files or of a table that Spark names; lines of them are not known."""

    state: str
    """Digest of the names, sizes and times of change of the files."""

    written_as: str = ""

    @property
    def read_as(self) -> str:
        return self.written_as

    def sha256(self) -> str:
        """The digest of what the files are known by; their bytes are read once only."""
        return self.state


def registered(session: SparkSession, sources: Sequence[Source]) -> list[Source]:
    """Views of the sources: one of all local files that are written alike, as each takes Spark jobs
    of its own.

    Raises InputError for lines that are no text, and a file that Spark would leave out.
    """
    alike: dict[Hashable, list[Source]] = {}
    for source in sources:
        look = source.relation if isinstance(source, Named) else _look(source)
        alike.setdefault(look, []).append(source)
    return [
        files[0] if isinstance(files[0], Named) else _together(session, files)
        for files in alike.values()
    ]


def _look(source: Source) -> Hashable:
    """All of a source that decides how it is read."""
    columns = [
        (name, column.sql, column.storage, column.type_name)
        for name, column in source.columns.items()
    ]
    text = (source.format, source.delimiter, source.names) if isinstance(source, TextFile) else ()
    return type(source), source.part_number, *source.folders.items(), *columns, *text


def _together(session: SparkSession, sources: Sequence[Source]) -> View:
    """The view of local files that are written alike."""
    for source in sources:
        assert source.path is not None
        if source.path.name.startswith(("_", ".")):
            raise InputError(f"{source.name}: Spark leaves out files named so; rename it")
    first = sources[0]
    files = {real_path(source.path): source for source in sources if source.path}
    paths = [f"file://{_literal(real_path(source.path))}" for source in sources if source.path]
    columns = first.columns
    if isinstance(first, JsonLinesFile):
        rows, columns = _json_lines(session, first, paths)
    elif isinstance(first, TextFile):
        rows = _text(session, first, paths, files)
    else:
        rows = session.read.parquet(*paths).select("*", f.expr(_FILE))
        types = {field.name: field.dataType.typeName() for field in rows.schema}
        # Nanoseconds of INT96 are read as a time, which has none.
        columns = {
            name: replace(column, storage=_WITHOUT_NANOSECONDS.get(column.storage, column.storage))
            if types.get(name, "").startswith("timestamp")
            else column
            for name, column in columns.items()
        }
    return View(
        name=names_of(sources), relation=_view(rows), columns=columns, files=files,
        size=sum(source.size for source in sources), folders=first.folders,
        part_number=first.part_number, first_line=first.header, session=session,
    )  # fmt: skip


def open_named(session: SparkSession, name: str, format: FileFormat) -> Named:
    """The table of Spark's catalogue, or the files, that a name such as ``table:shop.plays`` or
    ``s3a://bucket/plays`` stands for.

    Of several files of text the first says how all are written. Raises InputError where there are
    none, or none that can be read.
    """
    if name.startswith(TABLE):
        rows = session.table(name.removeprefix(TABLE))
        files = rows.inputFiles()
        return _typed(session, name, rows, _listed(session, files) if files else _summed(rows))
    listed = _listed(session, [name])
    first = Path(urlparse(listed[0][0]).path)
    if first.suffix.lower() in PARQUET_SUFFIXES:
        rows = session.read.parquet(name).select("*", f.expr(_FILE))
        return _typed(session, name, rows, listed)
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
        rows, columns = _json_lines(session, source, [name])
    else:
        rows = _text(session, source, [name], {})
    return Named(
        name=name, relation=_view(rows), columns=columns, size=sum(size for _, size, _ in listed),
        state=_digest(listed), written_as=source.read_as, first_line=source.header, session=session,
    )  # fmt: skip


def _typed(
    session: SparkSession, name: str, rows: DataFrame, listed: list[tuple[str, int, str]]
) -> Named:
    """A source of rows whose columns have types."""
    columns = {
        field.name: Column(
            sql=identifier(field.name),
            storage=_STORAGE.get(field.dataType.typeName(), "other"),
            type_name=field.dataType.simpleString(),
        )
        for field in rows.schema
        if field.name != "file_of_row"
    }
    return Named(
        name=name, relation=_view(rows), columns=columns, size=sum(size for _, size, _ in listed),
        state=_digest(listed), session=session,
    )  # fmt: skip


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


def _named(place: str) -> str:
    """The path of a local file, or the name of another, that Spark has as a URL."""
    return re.sub("^file:(//)?(?=/)", "", unquote(place))


def _literal(path: str) -> str:
    """A path that Spark takes as itself and not as a pattern."""
    return "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in path)


def _text(
    session: SparkSession, first: TextFile, paths: list[str], files: Mapping[str, Source]
) -> DataFrame:
    """Columns ``c0``, ``c1``, ... of text, in files that are written as the first is."""
    names = [f"c{position}" for position in range(len(first.names))]
    has_breaks = first.format.encoding == "utf-16"
    if not has_breaks:
        has_breaks = _check_lines(session, first, paths, files)
    rows = (
        session.read.schema(", ".join(f"{name} STRING" for name in names))
        # A row with too few or too many fields ends the query that meets it.
        .option("mode", "FAILFAST")
        .option("header", first.header is not None)
        .option("sep", first.delimiter)
        .option("quote", '"' if first.has_quotes else "")
        .option("escape", '"' if first.has_quotes else "")
        .option("encoding", _ENCODINGS[first.format.encoding])
        .option("multiLine", has_breaks)
        .csv(paths)
    )
    return rows.select("*", f.expr(_FILE))


def _check_lines(
    session: SparkSession, first: TextFile, paths: list[str], files: Mapping[str, Source]
) -> bool:
    """True where a quoted field may have line breaks; InputError for a line that is not text."""
    is_text = "true" if first.format.encoding != "utf-8" else "is_valid_utf8(value)"
    num_quotes = "length(value) - length(replace(value, '\"', ''))"
    lines = session.read.text(paths).select("value", f.expr(_FILE))
    bad, has_odd = lines.select(
        f.expr(f"min(CASE WHEN NOT {is_text} THEN file_of_row END)"),
        f.expr(f"coalesce(bool_or(({num_quotes}) % 2 = 1), false)"),
    ).collect()[0]
    if bad is not None:
        file, where = files.get(_named(bad)), _named(bad)
        if isinstance(file, TextFile):
            where = f"{file.name}, line {file.first_line_not_text()}"
        raise InputError(f"{where}: {not_utf8(first.format)}")
    return bool(has_odd) and first.has_quotes


def _json_lines(
    session: SparkSession, first: JsonLinesFile, paths: list[str]
) -> tuple[DataFrame, dict[str, Column]]:
    """A column of text for each key, of numbers as they are written."""
    columns = {
        key: column if key in first.folders else replace(column, rounded=None)
        for key, column in first.columns.items()
    }
    keys = [key for key in columns if key not in first.folders]
    rows = (
        session.read.schema(StructType([StructField(key, StringType()) for key in keys]))
        .option("mode", "FAILFAST")
        .option("encoding", _ENCODINGS[first.format.encoding])
        .json(paths)
    )
    named = [rows[f"`{key}`"].alias(columns[key].sql) for key in keys]
    return rows.select(*named, f.expr(_FILE)), columns
