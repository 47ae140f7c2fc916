"""Sources that Spark names, tables of its catalogue and files in stores, as temporary views."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from foretaste.data.preparation.spark_sources import (
    FILE_OF_ROW,
    NO_PARQUET,
    View,
    reader_of,
    view_of,
)
from foretaste.data.preparation.spark_sql import with_backslashes
from foretaste.data.sources import (
    EMPTY_VALUE,
    NAMED_FOLDER,
    PARQUET_SUFFIXES,
    TABLE,
)
from foretaste.data.sources.source import Column, Storage, identifier, quoted
from foretaste.errors import InputError

_STORAGE: dict[str, Storage] = {
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "real"),
    **dict.fromkeys(("date", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
    "timestamp": "instant",
}  # fmt: skip
_SCHEME = re.compile("^[a-z][a-z0-9+.-]*:(?://[^/]*)?")
_PATTERN = re.compile(r"(?<!\\)[*?\[{]")


@dataclass(frozen=True, kw_only=True, eq=False)
class Named(View):
    """Rows of files or of a table that Spark names; lines of them are not known."""

    state: str
    """Digest of the names, sizes and times of change of the files; of a table's name and rows."""

    def sha256(self) -> str:
        """The digest of what the source is known by; the bytes of files are read once only."""
        return self.state


def open_named(session: SparkSession, name: str) -> Named:
    """The table of Spark's catalogue, or the files, that a name such as ``table:shop.plays`` or
    ``s3a://bucket/plays`` stands for, those in folders of a folder too.

    Raises InputError where there are none, or none that can be read.
    """
    if name.startswith(TABLE):
        rows = session.table(name.removeprefix(TABLE))
        return _typed(session, name, rows, _summed(name, rows))
    listed = _listed(session, name)
    for path, _, _ in listed:
        if Path(path).suffix.lower() not in PARQUET_SUFFIXES:
            raise InputError(f"{path}: {NO_PARQUET}")
    rows = reader_of(session).parquet(name).select("*", f.expr(FILE_OF_ROW))
    return _with_folders(_typed(session, name, rows, listed), listed)


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
        name=name, relation=view_of(rows), columns=columns, size=sum(size for _, size, _ in listed),
        state=_digest(listed), session=session,
    )  # fmt: skip


def _with_folders(source: Named, listed: list[tuple[str, int, str]]) -> Named:
    """A source with the columns, as text, that folders named COLUMN=VALUE below it name; a column
    of the files' own goes before them."""
    top = _parts(source.name)
    depth = next((n for n, part in enumerate(top) if _PATTERN.search(part)), len(top))
    found = dict.fromkeys(folder for path, _, _ in listed for folder in _parts(path)[depth:-1])
    own = {name.lower() for name in source.columns}
    columns: dict[str, Column] = {}
    folders: dict[str, str] = {}
    overruled = []
    for folder in found:
        if (named := NAMED_FOLDER.fullmatch(folder)) is None:
            continue
        name = unquote(named[1])
        if name.lower() in own:
            overruled.append(folder)
        elif name not in folders:
            folders[name] = folder
            above = f"{_SCHEME.pattern}(?:/+[^/]+){{{depth}}}"
            pattern = quoted(f"{above}/(?:.*/)?{re.escape(named[1])}=([^/]*)/")
            value = f"regexp_extract(file_of_row, {pattern}, 1)"
            text = f"coalesce(try_url_decode(replace({value}, '+', '%2B')), {value})"
            columns[name] = Column(
                sql=f"nullif({text}, {quoted(EMPTY_VALUE)})", storage="text", type_name="text"
            )
    return replace(
        source, columns=source.columns | columns, folders=folders, overruled=tuple(overruled)
    )


def _parts(place: str) -> list[str]:
    """The names on a path, without the store that it is in."""
    return [part for part in _SCHEME.sub("", place).split("/") if part]


def _listed(session: SparkSession, name: str) -> list[tuple[str, int, str]]:
    """Path, size and time of change of the files behind a name, in order."""
    files = reader_of(session).format("binaryFile").load(name)
    rows = files.selectExpr("path", "length", "CAST(modificationTime AS STRING)").collect()
    if not rows:
        raise InputError(f"{name}: there are no files in it")
    return sorted(tuple(row) for row in rows)


def _summed(name: str, rows: DataFrame) -> list[tuple[str, int, str]]:
    """A table's name, and a sum over its content: a view may change, or a table with versions, and
    its files not."""
    # With the names, as a NULL adds nothing to a hash and its neighbours would seem to be in its
    # place; as text, as a map has no hash.
    values = ", ".join(
        f"{quoted(column)}, CAST({identifier(column)} AS STRING)" for column in rows.columns
    )
    total = with_backslashes(f"sum(CAST(xxhash64({values}) AS DECIMAL(38, 0)))")
    content = tuple(rows.selectExpr("count(*)", total).collect()[0])
    return [(name, 0, f"{rows.schema.simpleString()} {content}")]


def _digest(listed: list[tuple[str, int, str]]) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
