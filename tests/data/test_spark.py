"""Spark prepares the dataset that DuckDB prepares, from the same files and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, GivenSplit, prepare
from foretaste.data.config import FileFormat
from foretaste.data.sources import open_sources
from foretaste.errors import InputError
from foretaste.runs.verification import verify
from tests.data.hostile_rows import COLUMNS, ITEMS, hostile_rows, write_csv, write_json
from tests.spark import quick_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = hostile_rows()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session for all tests of this file: starting one takes most of their time."""
    with quick_session() as session:
        yield session


@dataclass(frozen=True)
class Case:
    """A preparation that both engines make."""

    source: Callable[[Path], Any]
    settings: dict[str, Any]
    items: Callable[[Path], Path] | None = None
    num_partitions: int = 2
    rows_of_file: int = 1 << 20


def text(folder: Path) -> Path:
    return write_csv(folder / "hostile.csv", ROWS)


def folders(folder: Path) -> Path:
    """Files with their columns in other orders, and a folder that is a column."""
    half = len(ROWS) // 2
    write_csv(folder / "logs" / "shop=one" / "a.tsv", ROWS[:half], COLUMNS[::-1])
    write_csv(folder / "logs" / "shop=two" / "b.tsv", ROWS[half:-9])
    write_csv(folder / "logs" / "shop=two" / "c.tsv", ROWS[-9:])
    return folder / "logs"


def json_lines(folder: Path) -> Path:
    return write_json(folder / "hostile.jsonl", ROWS)


def split(folder: Path) -> GivenSplit:
    """A split of typed columns, with candidates as text of which some are test items."""
    columns = {
        "user id": pa.array([n % 17 * 10**12 for n in range(300)]),
        "item_id": pa.array([n * n % 23 - 5 for n in range(300)], pa.int8()),
        "time": pa.array([10**18 + n % 50 for n in range(300)], pa.timestamp("ns", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / "train.parquet")
    test = [(str(n % 17 * 10**12), str(n % 23 - 5), "", "") for n in range(0, 90, 2)]
    candidates = [(user, str(item), "", "") for user, *_ in test for item in range(-5, 30, 9)]
    return GivenSplit(
        train=folder / "train.parquet",
        test=write_csv(folder / "test.csv", test, ("user id", "item_id")),
        test_candidates=write_csv(folder / "candidates.csv", candidates, ("user id", "item_id")),
    )


def titles(folder: Path) -> Path:
    path = folder / "items.csv"
    path.write_text("item_id,name,year\n" + "".join(f'"{item}",t {item},1\n' for item in ITEMS))
    return path


CASES = {
    "leave-one-out": Case(
        text, {"min_user_interactions": 3, "min_item_users": 2}, titles, rows_of_file=60
    ),
    "held-out-users": Case(
        folders,
        {"protocol": "held-out-users", "filters": "reference", "num_heldout_users": 2, "seed": 3},
        num_partitions=5,
    ),
    "temporal": Case(
        json_lines,
        {"protocol": "temporal", "min_rating": 2.5, "unseen_targets": "drop"},
        num_partitions=1,
        rows_of_file=100,
    ),
    "given": Case(split, {"target_in_candidates": "drop"}, num_partitions=3, rows_of_file=40),
}


def contents(dataset: Dataset) -> dict[str, Any]:
    """Everything that an engine decides of a dataset."""
    manifest = dataset.manifest
    names = ("counts", "notes", "columns", "id_types", "filters", "config", "source")
    return {name: getattr(manifest, name) for name in names} | {"digest": manifest.digest}


def test_both_engines_prepare_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """However Spark shares the rows out, over tasks and over files."""
    from foretaste.data.preparation import spark_engine, spark_session

    for name, case in CASES.items():
        folder = tmp_path / name
        folder.mkdir()
        source, items = case.source(folder), case.items and case.items(folder)
        partitions = {"spark.sql.shuffle.partitions": str(case.num_partitions)}
        monkeypatch.setattr(spark_session, "_SETTINGS", spark_session._SETTINGS | partitions)
        monkeypatch.setattr(spark_engine, "_ROWS_OF_FILE", case.rows_of_file)
        with subtests.test(name):
            first, second = (
                prepare(source, folder / engine, items=items, engine=engine, **case.settings)
                for engine in ("duckdb", "spark")
            )
            assert contents(second) == contents(first)
            # Ranges of users are found by a sample of them, and some may have nobody.
            is_in_several = first.manifest.num_interactions > case.rows_of_file
            assert (len(second.manifest.train_files) > 1) == is_in_several
            assert second.manifest.engine.startswith("spark 4")
            assert verify(second.path).is_ok
            # A dataset is the same whatever engine made it.
            again = prepare(source, second.path, items=items, **case.settings)
            assert again.manifest == second.manifest


def test_what_spark_names(spark: Any, tmp_path: Path) -> None:
    """A folder of files by its URL, and a table of the catalogue."""
    from foretaste.data.preparation.spark_sources import open_named

    write_csv(tmp_path / "plays" / "a.csv", ROWS[:200])
    path = write_csv(tmp_path / "plays" / "b.csv", ROWS[200:])
    url = path.parent.as_uri()
    named = open_named(spark, url, FileFormat())
    assert list(named.columns) == list(COLUMNS)
    rows = spark.table(named.relation)
    assert sorted(tuple(row)[:4] for row in rows.collect()) == sorted(ROWS)
    assert named.provenance()["path"] == url
    assert named.locate("user id", "Zoë") in [str(path.with_name(f"{name}.csv")) for name in "ab"]
    state = named.sha256()
    write_csv(tmp_path / "plays" / "c.csv", ROWS[:1])
    assert open_named(spark, url, FileFormat()).sha256() != state

    plays = rows.selectExpr("c0 AS user", "CAST(c2 AS DOUBLE) AS rating")
    plays.write.option("path", f"{url}-as-table").saveAsTable("plays")
    plays.createOrReplaceTempView("no_files")
    for name in ("table:plays", "table:no_files"):
        table = open_named(spark, name, FileFormat())
        storage = {column: found.storage for column, found in table.columns.items()}
        assert storage == {"user": "text", "rating": "real"}
        assert table.locate("user", "Zoë") == name
        assert table.sha256() == open_named(spark, name, FileFormat()).sha256()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("s3a://bucket/plays", "s3a://bucket/plays: Spark has no connector for it"),
        ("odd://bucket/plays", "odd://bucket/plays: Spark has no connector for it"),
        ("hdfs:///plays", "Spark cannot read it: Incomplete HDFS URI, no host: hdfs:///plays"),
        ("file:///no/such/plays", "file:///no/such/plays.*does not exist"),
        ("table:no_such", "table:no_such: .*cannot be found"),
    ],
)
def test_names_that_spark_cannot_read(spark: Any, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        prepare(name, tmp_path / "x", engine="spark")


GOOD = "user,item\n" + "".join(f"{n % 3},{n}\n" for n in range(9))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{GOOD}1,2,3\n", r"b\.csv, line 11: expected 2 fields, found 3: '1,2,3'"),
        (f"{GOOD},7\n", r"b\.csv, line 11: user_id is empty"),
        (f"{GOOD}Zo\xeb,7\n", r"b\.csv, line 11: is not UTF-8 text"),
    ],
)
def test_an_error_names_the_file_and_line(
    spark: Any, content: str, message: str, tmp_path: Path
) -> None:
    """Of many files that are read as one."""
    folder = tmp_path / "plays"
    folder.mkdir()
    for name in "acd":
        (folder / f"{name}.csv").write_text(GOOD)
    (folder / "b.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        prepare(folder, tmp_path / "x", engine="spark", protocol="none")


def test_files_that_are_written_alike_are_read_as_one(spark: Any, tmp_path: Path) -> None:
    """Others are not, and a file that Spark would leave out is refused."""
    from foretaste.data.preparation.spark_sources import registered

    for day in ("1", "2"):
        folder = tmp_path / "plays" / f"day={day}"
        folder.mkdir(parents=True)
        for name in "abc":
            (folder / f"{name}.csv").write_text(GOOD)
        (folder / "d.csv").write_text(GOOD.replace(",", ";"))
    views = registered(spark, open_sources(tmp_path / "plays", FileFormat()))
    assert [spark.table(view.relation).count() for view in views] == [27, 9, 27, 9]
    times = pa.array([10**18 + n for n in range(3)], pa.timestamp("ns"))
    old = tmp_path / "old.parquet"
    pq.write_table(pa.table({"time": times}), old, use_deprecated_int96_timestamps=True)
    (view,) = registered(spark, open_sources(old, FileFormat()))
    assert view.columns["time"].storage == "moment"
    hidden = tmp_path / "_plays.csv"
    hidden.write_text(GOOD)
    with pytest.raises(InputError, match=r"_plays\.csv: Spark leaves out files named so"):
        registered(spark, open_sources(hidden, FileFormat()))
