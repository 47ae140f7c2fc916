"""Spark prepares the dataset that DuckDB prepares, from the same files and settings, and refuses
what it would read wrongly."""

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
    """A session for all tests of this file, as starting one takes most of their time; its own
    settings are to change nothing."""
    own = {"spark.sql.files.maxRecordsPerFile": "50", "spark.sql.files.ignoreCorruptFiles": "true"}
    with quick_session(own) as session:
        from foretaste.data.preparation import spark_session

        for name, value in spark_session._SETTINGS.items():
            session.conf.set(name, value)
        yield session


@dataclass(frozen=True)
class Case:
    """A preparation that both engines make."""

    source: Callable[[Path], Any]
    settings: dict[str, Any]
    items: Callable[[Path], Path] | None = None
    num_partitions: int = 2
    rows_of_file: int = 1 << 20
    is_usual: bool = False
    """Compiled by Spark and planned anew as it runs, as where nothing is set for tests."""


def text(folder: Path) -> Path:
    return write_csv(folder / "hostile.csv", ROWS)


def folders(folder: Path) -> Path:
    """Files with their columns in other orders, and a folder that is a column."""
    half = len(ROWS) // 2
    write_csv(folder / "logs" / "shop=one" / "a.tsv", ROWS[:half], COLUMNS[::-1])
    write_csv(folder / "logs" / "shop=two" / "b.tsv", ROWS[half:-9])
    write_csv(folder / "logs" / "shop=two" / "c.tsv", ROWS[-9:])
    return folder / "logs"


def latin_without_times(folder: Path) -> Path:
    """Text in another encoding, with a line break within a field."""
    path = folder / "latin.csv"
    rows = [row[:3] for row in ROWS if all(ord(char) < 256 for char in "".join(row))]
    rows.append(("naïve\nname", '"ÿ"', "5"))
    write_csv(path, rows, COLUMNS[:3])
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    return path


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
    "random": Case(
        latin_without_times,
        {"protocol": "leave-one-out", "validation": "none", "encoding": "latin-1"},
        is_usual=True,
    ),
    "none": Case(split, {"protocol": "none"}, rows_of_file=90),
}
_USUAL = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
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

    usual = spark_session._SETTINGS
    for name, case in CASES.items():
        folder = tmp_path / name
        folder.mkdir()
        source, items = case.source(folder), case.items and case.items(folder)
        settings = {
            **usual,
            **(_USUAL if case.is_usual else {}),
            "spark.sql.shuffle.partitions": str(case.num_partitions),
        }
        monkeypatch.setattr(spark_session, "_SETTINGS", settings)
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
    """A folder of files by its URL, and tables of the catalogue."""
    from foretaste.data.preparation.spark_names import open_named

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


def test_a_table_is_known_by_its_rows(spark: Any) -> None:
    """Views of one table are others, and a view that is altered is another, as its rows are."""
    from foretaste.data.preparation.spark_names import open_named

    states = set()
    rows = "VALUES ('a', NULL, map(1, 2)), ('b', 'c', NULL) AS t"
    spark.sql(f"CREATE TABLE three USING parquet AS SELECT * FROM {rows}(user, item, extra)")
    queries = [
        *("user, item FROM three", "item AS user, user AS item FROM three", "user FROM three"),
        *("item, user FROM three", "user, item, extra FROM three"),
        "coalesce(item, user) AS user, nullif(item, user) AS item FROM three WHERE item IS NULL",
        "coalesce(item, user) AS item, nullif(item, user) AS user FROM three WHERE item IS NULL",
    ]
    for name in ("shop_eu", "shop_us"):
        for query in queries:
            spark.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT {query}")
            states.add(open_named(spark, f"table:{name}", FileFormat()).sha256())
    assert len(states) == 2 * len(queries)


def test_folders_below_a_name_are_read(spark: Any, tmp_path: Path) -> None:
    """Folders are read whether or not they are columns, as those of a local folder."""
    from foretaste.data.preparation.spark_names import open_named

    folders = ("", "2024/01", "shop=Zo%C3%AB 1+1", "shop=__HIVE_DEFAULT_PARTITION__/x", "item_id=7")
    for number, folder in enumerate(folders, start=1):
        write_csv(tmp_path / "a [b] é" / "shop=above" / folder / "x.csv", ROWS[:number])
        table = pa.table({"item_id": ["1"] * number})
        place = tmp_path / "parquet" / "shop=above" / folder
        place.mkdir(parents=True)
        pq.write_table(table, place / "x.parquet")
    for url in (
        f"file://{tmp_path}/a \\[b\\] é/shop=above",
        f"file://{tmp_path}/parquet/*",
    ):
        named = open_named(spark, url, FileFormat())
        assert named.overruled == ("item_id=7",)
        shop = f"SELECT {named.columns['shop'].sql} AS shop FROM {named.relation}"
        found = spark.sql(f"SELECT shop, count(*) FROM ({shop}) GROUP BY shop").collect()
        above = "above" if url.endswith("*") else ""
        expected = {above: 1 + 2 + 5, "Zoë 1+1": 3, None: 4}
        assert dict(map(tuple, found)) == expected
        assert named.locate("shop", "Zoë 1+1") == url


def test_files_behind_one_name_have_one_header(spark: Any, tmp_path: Path) -> None:
    """Columns in another order are refused; named one by one, files are read by their own."""
    rows = [(f"Zoë {n % 3}", f"é{n}", "", "") for n in range(9)]
    folder = tmp_path / "plays"
    paths = [
        write_csv(folder / "a.csv", rows, ("user id", "item_id")),
        write_csv(folder / "b.csv", rows[3:], ("item_id", "user id")),
    ]
    for path in paths:
        path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    settings: dict[str, Any] = {"protocol": "none", "encoding": "latin-1"}
    with pytest.raises(InputError, match=r"plays/b\.csv: its header is not that of the first file"):
        prepare(folder.as_uri(), tmp_path / "x", engine="spark", **settings)
    urls = [path.as_uri() for path in paths]
    one_by_one = prepare(urls, tmp_path / "spark", engine="spark", **settings)
    local = prepare(folder, tmp_path / "duckdb", **settings)
    assert one_by_one.manifest.digest == local.manifest.digest


def test_encodings_of_what_spark_names(spark: Any, tmp_path: Path) -> None:
    """Characters whose bytes look like ends of lines among them."""
    from foretaste.data.preparation.spark_names import open_named

    users = ["Zoë", "\u010a\u0a0d", "日本"]
    text = "user,item\r\n" + "".join(f"{user},é\r\n" for user in users)
    objects = "".join(f'{{"user": "{user}"}}\r\n' for user in ("Zoë", "ÿ"))
    for name, content, encoding in (
        ("wide.csv", text, "utf-16"),
        ("latin.jsonl", objects, "latin-1"),
        ("wide.jsonl", objects, "utf-16"),
    ):
        (tmp_path / name).write_bytes(content.encode(encoding))
    wide = open_named(spark, (tmp_path / "wide.csv").as_uri(), FileFormat(encoding="utf-16"))
    assert list(wide.columns) == ["user", "item"]
    assert [row[0] for row in spark.table(wide.relation).collect()] == users
    url = (tmp_path / "latin.jsonl").as_uri()
    latin = open_named(spark, url, FileFormat(encoding="latin-1"))
    assert [row[0] for row in spark.table(latin.relation).collect()] == ["Zoë", "ÿ"]
    with pytest.raises(InputError, match=r"wide\.jsonl: is JSON lines in UTF-16"):
        open_named(spark, (tmp_path / "wide.jsonl").as_uri(), FileFormat(encoding="utf-16"))


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


def test_rows_with_an_empty_id_are_left_out(spark: Any, tmp_path: Path) -> None:
    """Ids that a missing one makes floats become integers, as by the other engine."""
    users, items = [7.0, None, 7.0, 8.0, 9.0, float("nan")], ["a", "a", "b", None, "a", ""]
    pq.write_table(pa.table({"customer": users, "sku": items}), tmp_path / "guests.parquet")
    made = [
        prepare(
            tmp_path / "guests.parquet", tmp_path / engine,
            engine=engine, protocol="none", empty_ids="drop",
        ).manifest
        for engine in ("duckdb", "spark")
    ]  # fmt: skip
    assert made[0].digest == made[1].digest
    assert made[0].id_types == made[1].id_types == {"user_id": "integer", "item_id": "text"}
    assert made[0].counts == made[1].counts
    assert made[0].counts["num_rows_with_an_empty_id"] == 3
    pq.write_table(pa.table({"customer": items, "sku": [1] * 6}), tmp_path / "guests.parquet")
    with pytest.raises(InputError, match=r"guests\.parquet: user_id is empty .*--empty-ids drop"):
        prepare(tmp_path / "guests.parquet", tmp_path / "x", engine="spark")
    pq.write_table(pa.table({"customer": [1.5, None], "sku": [1, 2]}), tmp_path / "guests.parquet")
    with pytest.raises(InputError, match=r"guests\.parquet: user_id '1.5' is not an id"):
        prepare(tmp_path / "guests.parquet", tmp_path / "y", engine="spark", empty_ids="drop")


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
