"""Spark, set up for a preparation; its tables are Parquet files that all executors see."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from foretaste._util.files import real_path
from foretaste.data.preparation.casts import Spellings
from foretaste.data.preparation.engine import Engine, FoundRows, Row
from foretaste.data.preparation.spark_session import Spark, translate_errors
from foretaste.data.preparation.spark_sources import View, double_backslashes, register_views
from foretaste.data.sources.arrow import Frame
from foretaste.data.sources.source import Source
from foretaste.errors import DatasetError, InputError

ROWS_OF_FILE = 10_000_000
# DuckDB writes the same number into a row group.
_ROWS_OF_GROUP = 122_880


class SparkEngine(Engine):
    """The tables of one preparation in a Spark session."""

    # Spark is for rows that exceed one disk, or that are on a cluster already: 20 million rows on
    # two cores took Spark 144 s and 5.9 GiB, DuckDB 13 s and 0.85 GiB.

    name = f"spark {pyspark.__version__}"
    sql = Spellings(
        each="explode({values})",
        split="split({text}, concat('\\Q', {mark}, '\\E'))",
        matches="regexp_like({text}, '^({pattern})\\z')",
        num_bytes="octet_length({text})",
        micros="unix_micros(CAST({value} AS TIMESTAMP))",
    )
    reads_numbers_of_text = False

    def __init__(self, spark: Spark, scratch: Path) -> None:
        self._spark = spark
        self._scratch = scratch
        self._places: dict[str, Path] = {}
        self._views: list[str] = []

    def __enter__(self) -> SparkEngine:
        return self

    def __exit__(self, *error: object) -> None:
        for table in (*self._places, *self._views):
            self._spark.session.catalog.dropTempView(table)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def register(self, sources: Sequence[Source]) -> list[Source]:
        for source in sources:
            if isinstance(source, Frame):
                raise InputError(
                    f"{source.name}: is in memory already, and engine spark reads files and "
                    "tables; prepare it with engine duckdb"
                )
        with translate_errors():
            return register_views(self._spark.session, sources)

    def run(self, sql: str) -> list[Row]:
        with translate_errors():
            return [tuple(row) for row in self._query(sql).collect()]

    def find_rows(self, source: Source, where: str, value: str) -> FoundRows:
        assert isinstance(source, View)
        # Spark knows the file of a row but not its number, so the smallest value is the example.
        query = f"SELECT count(*), min(struct({source.file} AS file, {value} AS value))"
        count, first = self.row(f"{query} FROM {source.rows_kept} WHERE {where}")
        place = source.name if first is None else source.place_in(first["file"])
        return FoundRows(count=count, place=place, value=None if first is None else first["value"])

    def make(self, table: str, query: str) -> None:
        # Tables are files, not in Spark's cache: a cached table carries the plans of all tables
        # before it, and each step then took Spark longer.
        place = self._scratch / f"{table}-{uuid4().hex}"
        with translate_errors():
            rows = self._query(query)
            rows.write.parquet(_uri(place))
            _files_in(place)
            self._keep(table, place, rows.schema)

    def define(self, view: str, query: str) -> None:
        with translate_errors():
            self._query(query).createOrReplaceTempView(view)
        self._views.append(view)

    def drop(self, table: str) -> None:
        self._spark.session.catalog.dropTempView(table)
        shutil.rmtree(self._places.pop(table), ignore_errors=True)

    def rename(self, table: str, name: str) -> None:
        schema = self._spark.session.table(table).schema
        self._spark.session.catalog.dropTempView(table)
        self._keep(name, self._places.pop(table), schema)

    def count(self, relation: str) -> int:
        if relation not in self._places:
            return super().count(relation)
        # The footers of the table's files have the number, so no Spark job is needed.
        return sum(pq.read_metadata(file).num_rows for file in _files_in(self._places[relation]))

    def write(self, query: str, path: Path) -> None:
        rows = self._query(query)
        # One task sorts the rows again, because Spark promises no order among files.
        (file,) = self._write_sorted(
            rows.repartition(1), rows.columns[:2], path.with_suffix(".tmp")
        )
        file.rename(path)
        shutil.rmtree(path.with_suffix(".tmp"))

    def write_train(self, query: str, directory: Path, num_rows: int) -> list[str]:
        rows = self._query(query)
        num_files = math.ceil(num_rows / ROWS_OF_FILE)
        # The user alone decides the ranges, so no user is in two files.
        parts = rows.repartitionByRange(num_files, "user_index")
        files = self._write_sorted(parts, rows.columns[:2], directory / "written")
        (directory / "train").mkdir()
        names = [f"train/part-{number:05d}.parquet" for number in range(len(files))]
        for file, name in zip(files, names, strict=True):
            file.rename(directory / name)
        shutil.rmtree(directory / "written")
        return names

    def _write_sorted(self, rows: DataFrame, order: list[str], directory: Path) -> list[Path]:
        """Write rows into files, each sorted by these columns; returns the files in order."""
        with translate_errors():
            writer = rows.sortWithinPartitions(*order).write
            writer = writer.option("parquet.block.row.count.limit", _ROWS_OF_GROUP)
            writer.parquet(_uri(directory))
        return _files_in(directory)

    def _query(self, sql: str) -> DataFrame:
        return self._spark.session.sql(double_backslashes(sql))

    def _keep(self, table: str, place: Path, schema: StructType) -> None:
        rows = self._spark.session.read.schema(schema).parquet(_uri(place))
        rows.createOrReplaceTempView(table)
        self._places[table] = place


def _files_in(directory: Path) -> list[Path]:
    """Return the files that Spark wrote, in the order of its partitions; at least one."""
    files = sorted(directory.glob("part-*.parquet"))
    if not files:
        raise DatasetError(
            f"{directory.parent}: was not written: Spark's executors have another disk than "
            "this process; name a folder that all of them share"
        )
    return files


def _uri(path: Path) -> str:
    return Path(real_path(path)).as_uri()
