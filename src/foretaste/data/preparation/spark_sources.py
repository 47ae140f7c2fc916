"""Sources as temporary views of Spark: local files of one format, files in stores, and tables of
the catalogue. Files are Parquet or lists."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, StructField

from foretaste._util.files import real_path
from foretaste.data.config import FileFormat
from foretaste.data.sources import TABLE
from foretaste.data.sources.lists import COLUMNS, READ_AS, USERS, ListsFile
from foretaste.data.sources.paths import TABLE_LOGS, is_table
from foretaste.data.sources.shape import SEPARATOR
from foretaste.data.sources.source import (
    PARQUET_SUFFIXES,
    TIMES,
    Column,
    Source,
    Storage,
    identifier,
    names_of,
    sql_literal,
)
from foretaste.data.sources.text import TextFile
from foretaste.errors import InputError

_NO_PARQUET = (
    "is no Parquet, and engine spark reads Parquet and tables alone; have Spark write it as "
    "Parquet first, as docs/data.md shows, or prepare it with engine duckdb"
)
# The path of a local file, without file:, or Spark's name of any other file.
_FILE_OF_ROW = (
    "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:(//)?/', '/') "
    "AS file_of_row"
)
_STORAGE: dict[str, Storage] = {
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "real"),
    **dict.fromkeys(("date", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
    "timestamp": "instant",
    "void": "integer",
    "boolean": "truth",
}  # fmt: skip
_LITERAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")


@dataclass(frozen=True, kw_only=True, eq=False)
class View(Source):
    """Rows of a temporary view; column ``file_of_row`` has the path of each row's file."""

    session: SparkSession

    files: Mapping[str, Source] = field(default_factory=dict)
    """The local files of the view, by their path."""

    state: str = ""
    """Digest of the names, sizes and times of change of files in a store, or of a table's name and
    rows. The digest omits the bytes, because files are read only once."""

    @property
    def read_as(self) -> str:
        return READ_AS if self.users else ""

    def sha256(self) -> str:
        return self.state

    @property
    def identity(self) -> Hashable:
        return self.name

    def place_in(self, path: str) -> str:
        """Return the name of the file at ``path``; the source's name if the path is empty."""
        if not path:
            return self.name
        file = self.files.get(path)
        return path if file is None else file.name


def register_views(session: SparkSession, sources: Sequence[Source]) -> list[Source]:
    """Return views of the sources; all local files of one format share a view.

    Each view takes Spark jobs of its own. Raises InputError for a file of text, and for a file that
    Spark would ignore.
    """
    alike: dict[Hashable, list[Source]] = {}
    for source in sources:
        if isinstance(source, TextFile) and not isinstance(source, ListsFile):
            raise InputError(f"{source.name}: {_NO_PARQUET}")
        # A source opened by Spark is a view already.
        layout = source.relation if isinstance(source, View) else _layout(source)
        alike.setdefault(layout, []).append(source)
    return [
        files[0] if isinstance(files[0], View) else _view_of_files(session, files)
        for files in alike.values()
    ]


def _layout(source: Source) -> Hashable:
    """Return all properties of a source that decide its reading."""
    columns = [
        (name, column.sql, column.storage, column.type_name)
        for name, column in source.columns.items()
    ]
    return source.part_number, bool(source.users), *columns


def _view_of_files(session: SparkSession, sources: Sequence[Source]) -> View:
    """Return the view of local files of one format."""
    for source in sources:
        assert source.path is not None
        if source.path.name.startswith(("_", ".")):
            raise InputError(f"{source.name}: Spark leaves out files named so; rename it")
    first = sources[0]
    files = {real_path(source.path): source for source in sources if source.path}
    paths = [f"file://{_literal(real_path(source.path))}" for source in sources if source.path]
    if isinstance(first, ListsFile):
        lists = _lists_in(session, names_of(sources), first.format, *paths)
        size = sum(source.size for source in sources)
        return replace(lists, files=files, size=size, part_number=first.part_number)
    rows = _reader_of(session).parquet(*paths).select("*", f.expr(_FILE_OF_ROW))
    names = [f"c{position}" for position in range(len(rows.columns) - 1)]
    rows = rows.toDF(*names, "file_of_row")
    types = {field.name: field.dataType.typeName() for field in rows.schema}
    # Spark has no type with nanoseconds and reads them as integers. The column rounds them as
    # DuckDB does.
    columns = {
        name: replace(column, sql=f"timestamp_micros(CAST(round({column.sql} * 0.001) AS BIGINT))")
        if column.storage in TIMES and types[column.sql] == "long"
        else column
        for name, column in first.columns.items()
    }
    return View(
        name=names_of(sources), relation=_view_of(rows), columns=columns, files=files,
        size=sum(source.size for source in sources), part_number=first.part_number,
        session=session, file="file_of_row",
    )  # fmt: skip


def _lists_in(session: SparkSession, name: str, format: FileFormat, *paths: str) -> View:
    """Return the view of files of lists; InputError if their encoding is not UTF-8."""
    if format.encoding != "utf-8":
        raise InputError(
            f"{name}: is read by engine spark as UTF-8 alone, and encoding is {format.encoding}; "
            "convert it, for example with iconv -t UTF-8, or prepare it with engine duckdb"
        )
    # Spark would read bytes of another encoding as U+FFFD.
    lines = _reader_of(session).text(list(paths))
    lines = lines.selectExpr("validate_utf8(value) AS value", _FILE_OF_ROW)
    users = USERS.format(line="value", lines=_view_of(lines), columns=", file_of_row")
    items = f"posexplode(slice(split(line, '{SEPARATOR}'), 2, length(line)))"
    relation = (
        f"(SELECT user_id, item_id, time_rank, file_of_row FROM {users} LATERAL VIEW {items} "
        "AS time_rank, item_id)"
    )
    return View(
        name=name, relation=relation, users=users, columns=COLUMNS, size=0, session=session,
        file="file_of_row",
    )  # fmt: skip


def _reader_of(session: SparkSession) -> DataFrameReader:
    """Return a reader of all files below a folder, without Spark's columns from folder names,
    because these would make Spark leave some files out."""
    return session.read.option("recursiveFileLookup", True)


def _view_of(rows: DataFrame) -> str:
    """Return the name of a new temporary view of these rows."""
    name = f"source_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    return name


def _literal(path: str) -> str:
    """Return a path with escapes, so that Spark does not read it as a pattern."""
    return "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in path)


def open_named(session: SparkSession, name: str, format: FileFormat | None = None) -> View:
    """Return a table, as ``table:shop.plays``, or files, as ``s3a://bucket/plays``.

    A folder includes the files in its folders. The files are Parquet, or lists by their ``format``.
    Raises InputError if the name has no files, or if they cannot be read.
    """
    if name.startswith(TABLE):
        rows = session.table(name.removeprefix(TABLE))
        return _make_view(session, name, rows, _checksum_rows(name, rows))
    _refuse_table(session, name)
    listed = _list_files(session, name)
    if format is not None and format.layout == "lists":
        size, state = _state_of(listed)
        return replace(_lists_in(session, name, format, name), size=size, state=state)
    for path, _, _ in listed:
        if Path(path).suffix.lower() not in PARQUET_SUFFIXES:
            raise InputError(f"{path}: {_NO_PARQUET}")
    rows = _reader_of(session).parquet(name).select("*", f.expr(_FILE_OF_ROW))
    return replace(_make_view(session, name, rows, listed), file="file_of_row")


def _refuse_table(session: SparkSession, name: str) -> None:
    """Raise InputError for a store's folder that has a table's log, or lies in one with a log."""
    *parts, _ = f"{name.rstrip('/')}/".split("/")
    # s3a://bucket/table/day=1 has the scheme, nothing, the bucket, and then folders.
    for folder in ("/".join(parts[:length]) for length in range(len(parts), 2, -1)):
        for kind, log in TABLE_LOGS:
            # The driver reports that the path does not exist; Spark reads nothing.
            with suppress(AnalysisException):
                session.read.format("binaryFile").load(f"{folder}/{log}")
                raise is_table(folder, kind, log)


def _make_view(
    session: SparkSession, name: str, rows: DataFrame, listed: list[tuple[str, int, str]]
) -> View:
    """Return the source of a DataFrame's rows."""
    columns = {
        field.name: Column(
            sql=identifier(field.name),
            storage=_STORAGE.get(field.dataType.typeName(), "other"),
            type_name=field.dataType.simpleString(),
            **_lists_of(field),
        )
        for field in rows.schema
        if field.name != "file_of_row"
    }
    size, state = _state_of(listed)
    return View(
        name=name, relation=_view_of(rows), columns=columns, size=size, session=session, state=state
    )


def _lists_of(field: StructField) -> dict[str, Any]:
    """Return the settings of a `Column` for lists; empty for other columns."""
    if not isinstance(field.dataType, ArrayType):
        return {}
    element = _STORAGE.get(field.dataType.elementType.typeName(), "other")
    return {"values": identifier(field.name), "element": element}


def _state_of(listed: list[tuple[str, int, str]]) -> tuple[int, str]:
    """Return the bytes of the files, and a digest of their names, sizes and times of change."""
    return sum(size for _, size, _ in listed), hashlib.sha256(
        json.dumps(listed).encode()
    ).hexdigest()


def _list_files(session: SparkSession, name: str) -> list[tuple[str, int, str]]:
    """Return path, size and time of change of the files of a name, in order."""
    files = _reader_of(session).format("binaryFile").load(name)
    rows = files.selectExpr("path", "length", "CAST(modificationTime AS STRING)").collect()
    if not rows:
        raise InputError(f"{name}: there are no files in it")
    return sorted(tuple(row) for row in rows)


def _checksum_rows(name: str, rows: DataFrame) -> list[tuple[str, int, str]]:
    """Return a table's name, and a checksum of its rows. The files cannot replace the rows: a view,
    or a table with versions, may change without a change of its files."""
    # The hash includes the column names, because a NULL adds nothing to a hash: a value and a NULL
    # beside it could change places unnoticed. Values are hashed as text, because a map has no hash.
    values = ", ".join(
        f"{sql_literal(column)}, CAST({identifier(column)} AS STRING)" for column in rows.columns
    )
    # The checksum is a sum, because rows have no order, and a sum of decimals, because a sum of
    # 64-bit hashes would overflow.
    total = double_backslashes(f"sum(CAST(xxhash64({values}) AS DECIMAL(38, 0)))")
    content = tuple(rows.selectExpr("count(*)", total).collect()[0])
    return [(name, 0, f"{rows.schema.simpleString()} {content}")]


def double_backslashes(sql: str) -> str:
    """Standard SQL with backslashes doubled in literals, because Spark reads them as escapes."""

    def escape(found: re.Match[str]) -> str:
        return found[0].replace("\\", "\\\\") if found[0].startswith("'") else found[0]

    return _LITERAL.sub(escape, sql)
