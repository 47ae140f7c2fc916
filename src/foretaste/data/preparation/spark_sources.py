"""Sources as Spark reads them, temporary views of files that are written alike."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from foretaste._util.files import real_path
from foretaste.data.preparation.spark_sql import with_backslashes
from foretaste.data.sources.source import (
    Source,
    Storage,
    names_of,
    quoted,
)
from foretaste.data.sources.text import TextFile
from foretaste.errors import InputError

NO_PARQUET = (
    "is no Parquet, and engine spark reads Parquet and tables alone; have Spark write it as "
    "Parquet first, as docs/data.md shows, or prepare it with engine duckdb"
)
FILE_OF_ROW = "url_decode(replace(_metadata.file_path, '+', '%2B')) AS file_of_row"
_WITHOUT_NANOSECONDS: dict[Storage, Storage] = {"moment_ns": "moment", "instant_ns": "instant"}


@dataclass(frozen=True, kw_only=True, eq=False)
class View(Source):
    """Rows of a temporary view, in which ``file_of_row`` is the place of their file."""

    session: SparkSession

    files: Mapping[str, Source] = field(default_factory=dict)
    """The local files among them, by their path."""

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

    Raises InputError for a file of text, and one that Spark would leave out.
    """
    alike: dict[Hashable, list[Source]] = {}
    for source in sources:
        if isinstance(source, TextFile):
            raise InputError(f"{source.name}: {NO_PARQUET}")
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
    return source.part_number, *source.folders.items(), *columns


def _together(session: SparkSession, sources: Sequence[Source]) -> View:
    """The view of local files that are written alike."""
    for source in sources:
        assert source.path is not None
        if source.path.name.startswith(("_", ".")):
            raise InputError(f"{source.name}: Spark leaves out files named so; rename it")
    first = sources[0]
    files = {real_path(source.path): source for source in sources if source.path}
    paths = [f"file://{literal(real_path(source.path))}" for source in sources if source.path]
    rows = reader_of(session).parquet(*paths).select("*", f.expr(FILE_OF_ROW))
    types = {field.name: field.dataType.typeName() for field in rows.schema}
    # Nanoseconds of INT96 are read as a time, which has none.
    columns = {
        name: replace(column, storage=_WITHOUT_NANOSECONDS.get(column.storage, column.storage))
        if types.get(name, "").startswith("timestamp")
        else column
        for name, column in first.columns.items()
    }
    return View(
        name=names_of(sources), relation=view_of(rows), columns=columns, files=files,
        size=sum(source.size for source in sources), folders=first.folders,
        part_number=first.part_number, session=session,
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
