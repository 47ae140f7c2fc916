"""Sources as Spark reads them, temporary views of files that are written alike."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from foretaste._util.files import real_path
from foretaste.data.config import FileFormat
from foretaste.data.preparation.spark_sql import with_backslashes
from foretaste.data.sources.json_lines import JsonLinesFile
from foretaste.data.sources.source import (
    Column,
    Source,
    Storage,
    names_of,
    quoted,
)
from foretaste.data.sources.text import TextFile, not_utf8
from foretaste.errors import InputError

FILE_OF_ROW = "url_decode(replace(_metadata.file_path, '+', '%2B')) AS file_of_row"
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
        rows = self.session.sql(with_backslashes(f"SELECT * FROM {self.relation}"))
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


def registered(session: SparkSession, sources: Sequence[Source]) -> list[Source]:
    """Views of the sources: one of all local files that are written alike, as each takes Spark jobs
    of its own.

    Raises InputError for lines that are no text, and a file that Spark would leave out.
    """
    alike: dict[Hashable, list[Source]] = {}
    for source in sources:
        # What Spark names is a view already.
        look = source.relation if isinstance(source, View) else _look(source)
        alike.setdefault(look, []).append(source)
    return [
        files[0] if isinstance(files[0], View) else _together(session, files)
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
    paths = [f"file://{literal(real_path(source.path))}" for source in sources if source.path]
    columns = first.columns
    if isinstance(first, JsonLinesFile):
        rows, columns = json_rows(session, first, paths)
    elif isinstance(first, TextFile):
        rows = text_rows(session, first, paths, files)
    else:
        rows = reader_of(session).parquet(*paths).select("*", f.expr(FILE_OF_ROW))
        types = {field.name: field.dataType.typeName() for field in rows.schema}
        # Nanoseconds of INT96 are read as a time, which has none.
        columns = {
            name: replace(column, storage=_WITHOUT_NANOSECONDS.get(column.storage, column.storage))
            if types.get(name, "").startswith("timestamp")
            else column
            for name, column in columns.items()
        }
    return View(
        name=names_of(sources), relation=view_of(rows), columns=columns, files=files,
        size=sum(source.size for source in sources), folders=first.folders,
        part_number=first.part_number, first_line=first.header, session=session,
    )  # fmt: skip


def reader_of(session: SparkSession) -> DataFrameReader:
    """A reader of all files below a folder, of which Spark makes no columns: it would then leave
    some files out."""
    return session.read.option("recursiveFileLookup", True)


def view_of(rows: DataFrame) -> str:
    """The name of a new temporary view of these rows."""
    name = f"source_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    return name


def _named(place: str) -> str:
    """The path of a local file, or the name of another, as Spark has it."""
    return re.sub("^file:(//)?(?=/)", "", place)


def literal(path: str) -> str:
    """A path that Spark takes as itself and not as a pattern."""
    return "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in path)


def text_rows(
    session: SparkSession, first: TextFile, paths: list[str], files: Mapping[str, Source]
) -> DataFrame:
    """Columns ``c0``, ``c1``, ... of text, in files that are written as the first is."""
    names = [f"c{position}" for position in range(len(first.names))]
    has_breaks = first.format.encoding == "utf-16"
    if not has_breaks:
        has_breaks = _check_lines(session, first, paths, files)
    fields = names if first.header is None else first.names
    rows = (
        reader_of(session)
        .schema(StructType([StructField(name, StringType()) for name in fields]))
        # A row with too few or too many fields ends the query that meets it, as does a header
        # that is not the first file's.
        .option("mode", "FAILFAST")
        .option("header", first.header is not None)
        .option("enforceSchema", False)
        .option("sep", first.delimiter)
        .option("quote", '"' if first.has_quotes else "")
        .option("escape", '"' if first.has_quotes else "")
        .option("encoding", _ENCODINGS.get(first.format.encoding, first.format.encoding))
        .option("multiLine", has_breaks)
        .csv(paths)
    )
    return rows.toDF(*names).select("*", f.expr(FILE_OF_ROW))


def _check_lines(
    session: SparkSession, first: TextFile, paths: list[str], files: Mapping[str, Source]
) -> bool:
    """True where a quoted field may have line breaks; InputError for a line that is not text."""
    is_text = "true" if first.format.encoding != "utf-8" else "is_valid_utf8(value)"
    # In bytes: in another encoding the characters are others.
    num_quotes = "octet_length(value) - octet_length(replace(value, '\"', ''))"
    lines = reader_of(session).text(paths).select("value", f.expr(FILE_OF_ROW))
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


def json_rows(
    session: SparkSession, first: JsonLinesFile, paths: list[str]
) -> tuple[DataFrame, dict[str, Column]]:
    """A column of text for each key, of numbers as they are written."""
    if first.format.encoding == "utf-16":
        raise InputError(
            f"{first.name}: is JSON lines in UTF-16, which Spark does not read; convert it, for "
            "example with iconv -f UTF-16 -t UTF-8"
        )
    columns = {
        key: column if key in first.folders else replace(column, rounded=None)
        for key, column in first.columns.items()
    }
    keys = [key for key in columns if key not in first.folders]
    reader = reader_of(session).option("mode", "FAILFAST")
    if first.format.encoding == "latin-1":
        # Spark asks for the end of lines in all encodings but UTF-8.
        reader = reader.option("encoding", _ENCODINGS["latin-1"]).option("lineSep", "\n")
    rows = reader.schema(StructType([StructField(key, StringType()) for key in keys])).json(paths)
    named = [rows[f"`{key}`"].alias(columns[key].sql) for key in keys]
    return rows.select(*named, f.expr(FILE_OF_ROW)), columns
