"""Spark prepares DuckDB's dataset from the same files and settings, and refuses files that it would
read wrongly."""

from __future__ import annotations

import decimal
import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, GivenSplit, prepare
from foretaste.data.config import FileFormat
from foretaste.data.preparation.casts import Kind, cast
from foretaste.data.preparation.duckdb_engine import DuckDBEngine
from foretaste.data.sources import open_sources
from foretaste.errors import InputError, SettingError
from foretaste.runs.verification import verify
from tests.data.conftest import refuse
from tests.data.hostile_rows import COLUMNS, ITEMS, Row, hostile_rows, write_csv
from tests.messages import Named, raises, whole
from tests.runs.tiny import make_run
from tests.spark import quick_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = hostile_rows()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session for all tests of this file, because a start takes most of their time; its own
    settings must change nothing."""
    own = {"spark.sql.files.maxRecordsPerFile": "50", "spark.sql.files.ignoreCorruptFiles": "true"}
    with quick_session(own) as session:
        from foretaste.data.preparation import spark_session

        for name, value in spark_session.SETTINGS.items():
            session.conf.set(name, value)
        yield session


@dataclass(frozen=True)
class Case:
    """A preparation by both engines."""

    source: Callable[[Path], Any]
    settings: dict[str, Any]
    items: Callable[[Path], Path] | None = None
    num_partitions: int = 2
    rows_of_file: int = 1 << 20
    is_usual: bool = False
    """True if Spark compiles queries and plans them again while they run, as outside of tests."""


def table_of(rows: list[Row], *, has_times: bool = True) -> pa.Table:
    """Rows with ratings and times of different types."""
    user, item, rating, _ = zip(*rows, strict=True)
    columns: dict[str, Any] = {"user id": user, "item_id": item}
    columns["rating"] = pa.array(map(float, rating), pa.float64())
    if has_times:
        moments = [10**15 + number * number % 37 for number in range(len(rows))]
        columns["timestamp"] = pa.array(moments, pa.timestamp("us", "UTC"))
    return pa.table(columns)


def write(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def one_file(folder: Path) -> Path:
    return write(folder / "hostile.parquet", table_of(ROWS))


def folders(folder: Path) -> Path:
    """Files in several folders, with their columns in other orders; ratings and times are
    decimals."""
    table, half = table_of(ROWS), len(ROWS) // 2
    for name, type in (("rating", pa.decimal128(6, 3)), ("timestamp", pa.decimal128(29, 9))):
        place = table.schema.get_field_index(name)
        values = table[name].cast(pa.int64()) if name == "timestamp" else table[name]
        table = table.set_column(place, name, values.cast(type))
    write(folder / "logs" / "shop=one" / "a.parquet", table[:half].select(COLUMNS[::-1]))
    write(folder / "logs" / "shop=two" / "b.parquet", table[half:-9])
    write(folder / "logs" / "shop=two" / "c.parquet", table[-9:])
    return folder / "logs"


def split(folder: Path) -> GivenSplit:
    """A split of typed columns, with candidates as text; some candidates are test items."""
    columns = {
        "user id": pa.array([n % 17 * 10**12 for n in range(300)]),
        "item_id": pa.array([n * n % 23 - 5 for n in range(300)], pa.int8()),
        "time": pa.array([10**18 + n % 50 * 499 for n in range(300)], pa.timestamp("ns", "UTC")),
    }
    test = [(str(n % 17 * 10**12), str(n % 23 - 5)) for n in range(0, 90, 2)]
    candidates = [(user, str(item)) for user, _ in test for item in range(-5, 30, 9)]

    def pairs(name: str, rows: list[tuple[str, str]]) -> Path:
        users, items = zip(*rows, strict=True)
        return write(folder / name, pa.table({"user id": users, "item_id": items}))

    return GivenSplit(
        train=write(folder / "train.parquet", pa.table(columns)),
        test=pairs("test.parquet", test),
        test_candidates=pairs("candidates.parquet", candidates),
    )


def weighted(folder: Path) -> Path:
    """Weights from 1e-12 to 1e9, events, and pairs that repeat over some days."""
    table = table_of(ROWS * 3, has_times=False)
    numbers = range(len(table))
    hours = [10 ** (number % 97 * 21 / 96 - 12) for number in numbers]
    events = [("view", "it's", None, "cart")[number % 4] for number in numbers]
    moments = [10**15 + number * number % 37 * 7_654_321_987 for number in numbers]
    columns = {
        "hours": pa.array(hours),
        "event": pa.array(events),
        "timestamp": pa.array(moments, pa.timestamp("us", "UTC")),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return write(folder / "weighted.parquet", table)


def units(folder: Path) -> Path:
    """Files in milliseconds and in seconds, with a day of 2099 after a gap. The ids of items are
    floats because some are missing."""
    items = [{8: None, 9: float("nan")}.get(n % 90, float(n)) for n in range(400)]
    for name, unit in (("a", 1000), ("b", 1), ("c", 1000)):
        times = [(1_600_000_000 + n * n % 997 * 3600) * unit for n in range(400)]
        if name == "b":
            times[7] = 4_070_908_800
        columns = {"user_id": [f"{name}{n % 31}" for n in range(400)], "item_id": items}
        write(folder / "plays" / f"{name}.parquet", pa.table(columns | {"timestamp": times}))
    return folder / "plays"


def typed_ids(folder: Path) -> list[Path]:
    """Ids and events of other types than text and integers, and one user with many rows."""
    numbers = range(900)
    users = [None if n % 50 == 7 else float(-1 if n % 3 == 0 else n % 120) for n in numbers]
    columns = {
        "user_id": pa.array(users, pa.float64()),
        "item_id": pa.array([decimal.Decimal(n % 31) for n in numbers], pa.decimal128(10, 2)),
        "liked": pa.array([None if n % 5 == 0 else n % 4 > 0 for n in numbers]),
    }
    no_rows = {"user_id": [], "item_id": [], "liked": []}
    items = ["caf\u00e9", "cafe\u0301", " tea", "[1,2]", "'007", '="1"', '=""', "NA"]
    text = {
        "user_id": [n % 9 for n in range(80)],
        "item_id": [items[n % 8] for n in range(80)],
        "liked": ["true"] * 80,
    }
    return [
        write(folder / "none.parquet", pa.table(no_rows)),
        write(folder / "typed.parquet", pa.table(columns)),
        write(folder / "text.parquet", pa.table(text)),
    ]


def one_form(folder: Path) -> Path:
    """Titles; two ids that differ in their form alone share one."""
    ids = ["cafe\u0301", " tea", "30"]
    return write(folder / "items.parquet", pa.table({"item_id": ids, "title": ["a", "b", "c"]}))


def described(folder: Path) -> Path:
    """Features of many types, of repeated items, and of new items."""
    numbers = range(200)
    ids = [ITEMS[n % len(ITEMS)] if n % 3 else f"new {n % 40}" for n in numbers]
    columns = {
        "item_id": ids,
        "tags": [[None, "a", f" {n % 7}", "\u00a0"][: n % 5] if n % 4 else None for n in numbers],
        "codes": pa.array([[n % 5, n % 3] for n in numbers], pa.list_(pa.int16())),
        "genres": [f"x.*|y{n % 3}| \\E z" if n % 6 else None for n in numbers],
        "whole": [None if n % 9 == 0 else float(n % 11) for n in numbers],
        "flag": [None if n % 10 == 0 else n % 7 > 2 for n in numbers],
    }
    return write(folder / "items.parquet", pa.table(columns))


CASES = {
    "ids": Case(
        typed_ids,
        {
            "protocol": "none",
            "empty_ids": "drop",
            "empty_values": ("NA", "29"),
            "event_column": "liked",
            "events": ("true",),
        },
        one_form,
    ),
    "leave-one-out": Case(one_file, {"min_item_users": 2}, rows_of_file=60),
    "new-items": Case(
        folders,
        {"protocol": "new-items", "features": ("codes",), "seed": 2},
        described,
    ),
    "held-out-users": Case(
        units,
        {
            "protocol": "held-out-users",
            "half_life": "1d",
            "empty_ids": "drop",
            "min_user_interactions": 13,
            "num_heldout_users": 9,
            "seed": 3,
        },
        num_partitions=5,
        rows_of_file=400,
    ),
    "given": Case(
        split,
        {},
        num_partitions=3,
        rows_of_file=40,
        is_usual=True,
    ),
    "weights": Case(
        weighted,
        {
            "protocol": "temporal",
            "min_rating": 2.5,
            "weight_column": "hours",
            "event_column": "event",
            "events": ("view=0.3", "it's", "cart=seen"),
            "half_life": "12h",
            "weight_scale": "log",
            "min_item_users": 2,
            "features": ("tags", "codes", "genres|", "whole", "flag"),
        },
        described,
        num_partitions=3,
        rows_of_file=40,
    ),
}
_USUAL = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def contents(dataset: Dataset) -> dict[str, Any]:
    """Everything in a dataset that an engine decides."""
    manifest = dataset.manifest
    names = ("counts", "notes", "columns", "id_types", "filters", "config", "source")
    digests = {name: getattr(manifest, name) for name in ("digest", "seen_digest")}
    return {name: getattr(manifest, name) for name in names} | digests


def test_both_engines_prepare_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Spark's distribution of the rows over tasks and files changes nothing."""
    from foretaste.data.preparation import spark_engine, spark_session

    usual = spark_session.SETTINGS
    for name, case in CASES.items():
        folder = tmp_path / name
        folder.mkdir()
        source, items = case.source(folder), case.items and case.items(folder)
        settings = {
            **usual,
            **(_USUAL if case.is_usual else {}),
            "spark.sql.shuffle.partitions": str(case.num_partitions),
        }
        monkeypatch.setattr(spark_session, "SETTINGS", settings)
        monkeypatch.setattr(spark_engine, "ROWS_OF_FILE", case.rows_of_file)
        with subtests.test(name):
            first, second = (
                prepare(source, folder / engine, items=items, engine=engine, **case.settings)
                for engine in ("duckdb", "spark")
            )
            assert contents(second) == contents(first)
            # A sample of the users decides the ranges of users, and some ranges may be empty.
            is_in_several = first.manifest.num_interactions > case.rows_of_file
            assert (len(second.manifest.train_files) > 1) == is_in_several
            assert second.manifest.engine.startswith("spark 4")
            assert verify(second.path) == []
            # A dataset is the same from both engines.
            again = prepare(source, second.path, items=items, **case.settings)
            assert again.manifest == second.manifest


def test_both_engines_find_the_pairs_that_a_run_has_not_seen(spark: Any, tmp_path: Path) -> None:
    table = table_of(ROWS)
    before = prepare(table[: len(ROWS) * 2 // 3], tmp_path / "before", protocol="none")
    run = make_run(tmp_path / "run", before)
    path = write(tmp_path / "today.parquet", table)
    settings: dict[str, Any] = {"protocol": "unseen", "like": run.path, "seed": 20261129}
    first, second = (
        prepare(path, tmp_path / engine, engine=engine, **settings)
        for engine in ("duckdb", "spark")
    )
    assert contents(second) == contents(first)
    assert first.manifest.counts["num_test_users"] > 1
    quiet = write(tmp_path / "quiet.parquet", table[: len(ROWS) // 3])
    found = prepare(quiet, tmp_path / "quiet", engine="spark", **settings)
    assert not found.has_split("test")


def test_what_spark_names(spark: Any, tmp_path: Path) -> None:
    """A folder of files by its URL, and tables of the catalogue."""
    from foretaste.data.preparation.spark_sources import open_named

    table = table_of(ROWS)
    write(tmp_path / "plays" / "a.parquet", table[:200])
    path = write(tmp_path / "plays" / "b.parquet", table[200:])
    url = path.parent.as_uri()
    named = open_named(spark, url)
    assert list(named.columns) == list(COLUMNS)
    rows = spark.table(named.relation)
    assert sorted(tuple(row)[:2] for row in rows.collect()) == sorted(row[:2] for row in ROWS)
    assert named.provenance()["path"] == url
    place = rows.where("`user id` = 'Zoë'").first()["file_of_row"]
    assert named.place_in(place) in [str(path.with_name(f"{name}.parquet")) for name in "ab"]
    state = named.sha256()
    write(tmp_path / "plays" / "c.parquet", table[:1])
    assert open_named(spark, url).sha256() != state

    plays = rows.selectExpr("`user id` AS user", "rating")
    plays.write.option("path", f"{url}-as-table").saveAsTable("plays")
    plays.createOrReplaceTempView("no_files")
    for name in ("table:plays", "table:no_files"):
        table = open_named(spark, name)
        storage = {column: found.storage for column, found in table.columns.items()}
        assert storage == {"user": "text", "rating": "real"}
        assert table.place_in("") == name
        assert table.sha256() == open_named(spark, name).sha256()


def test_a_table_is_known_by_its_rows(spark: Any) -> None:
    """Views of one table differ, and an altered view differs, because its rows do."""
    from foretaste.data.preparation.spark_sources import open_named

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
            states.add(open_named(spark, f"table:{name}").sha256())
    assert len(states) == 2 * len(queries)


def test_folders_below_a_name_are_read(spark: Any, tmp_path: Path) -> None:
    """Folders named COLUMN=VALUE are read too, without a column, as in a local folder."""
    from foretaste.data.preparation.spark_sources import open_named

    folders = ("", "2024/01", "shop=Zo%C3%AB 1+1", "shop=__HIVE_DEFAULT_PARTITION__/x", "item_id=7")
    for number, folder in enumerate(folders, start=1):
        table = pa.table({"item_id": ["1"] * number})
        for top in ("a [b] é", "parquet"):
            write(tmp_path / top / "shop=above" / folder / "x.parquet", table)
    for url in (
        f"file://{tmp_path}/a \\[b\\] é/shop=above",
        f"file://{tmp_path}/parquet/*",
    ):
        named = open_named(spark, url)
        assert list(named.columns) == ["item_id"]
        assert spark.table(named.relation).count() == 1 + 2 + 3 + 4 + 5


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json"])
@pytest.mark.parametrize("place", ["", "data/day=1"])
def test_a_folder_with_a_log_of_its_own_is_refused(
    spark: Any, tmp_path: Path, log: str, place: str
) -> None:
    part = write(tmp_path / "t" / place / "part-0.parquet", table_of(ROWS))
    (tmp_path / "t" / log).parent.mkdir(parents=True)
    (tmp_path / "t" / log).touch()
    for source in (part.parent.as_uri(), part, part.parent):
        refuse(source, engine="spark")


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("s3a://bucket/plays", ("s3a://bucket/plays",)),
        ("odd://bucket/plays", ("odd://bucket/plays",)),
        ("hdfs:///plays", (re.compile("Incomplete HDFS URI.*hdfs:///plays.*", re.DOTALL),)),
        ("file:///no/such/plays", (re.compile("/no/such/plays.*does not exist.*", re.DOTALL),)),
        ("table:no_such", ("table:no_such", re.compile("(?<=: ).*cannot be found.*", re.DOTALL))),
    ],
)
def test_names_that_spark_cannot_read(spark: Any, name: str, named: Named) -> None:
    refuse(name, *named, engine="spark")


def test_text_is_refused(spark: Any, tmp_path: Path) -> None:
    """Text is refused in local files, in files that Spark names, and as times and ratings in
    Parquet."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"user": 1, "item": 2}\n')
    path = write_csv(tmp_path / "plays" / "a.csv", ROWS)
    sound = one_file(tmp_path)
    for source, items in ((path, None), (path.as_uri(), None), (lines, None), (sound, path)):
        refuse(source, engine="spark", protocol="none", items=items)
    table = table_of(ROWS)
    for role, name in (("rating", "rating"), ("time", "timestamp")):
        place = table.schema.get_field_index(name)
        written = table.set_column(place, name, table[name].cast(pa.string()))
        write(tmp_path / "text.parquet", written)
        refuse(tmp_path / "text.parquet", name, role, engine="spark", min_rating=1.0)


def test_dates_and_clocks_in_two_columns_are_text(spark: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.parquet", pa.table({name: ["1"] for name in ("user", "item", "d", "c")})
    )
    refuse(path, "time_column", error=SettingError, engine="spark", time_column=("d", "c"))


def test_an_error_names_the_file(spark: Any, tmp_path: Path) -> None:
    """The error names one of many files that are read together."""
    rows = {"user": ["1"] * 9, "item": [str(number) for number in range(9)]}
    for name in "abcd":
        table = pa.table(rows | ({"user": ["", *rows["user"][1:]]} if name == "b" else {}))
        write(tmp_path / "plays" / f"{name}.parquet", table)
    refuse(
        tmp_path / "plays", whole(r"b\.parquet: user_id is empty"), engine="spark", protocol="none"
    )
    write(tmp_path / "long.parquet", pa.table(rows | {"user": ["é" * 513, *rows["user"][1:]]}))
    message = r"long\.parquet: user_id .* has 1,026 bytes; an id has at most 1,024"
    refuse(tmp_path / "long.parquet", whole(message), engine="spark", protocol="none")
    times = pa.array([-(2**63), *range(8)], pa.int64())
    write(tmp_path / "time.parquet", pa.table(rows | {"time": times}))
    refuse(tmp_path / "time.parquet", whole(r"time\.parquet: time .* is no time"), engine="spark")


def test_rows_with_an_empty_id_are_refused(spark: Any, tmp_path: Path) -> None:
    items = ["a", "a", "b", None, "a", ""]
    empty = write(tmp_path / "empty.parquet", pa.table({"customer": items, "sku": [1] * 6}))
    refuse(empty, whole(r"empty\.parquet: user_id is empty .*--empty-ids drop"), engine="spark")
    half = write(tmp_path / "half.parquet", pa.table({"customer": [1.5, None], "sku": [1, 2]}))
    refuse(
        half, whole(r"half\.parquet: user_id '1.5' is not an id"), engine="spark", empty_ids="drop"
    )


def test_nanoseconds_are_rounded_by_both_engines(spark: Any, tmp_path: Path) -> None:
    """Nanoseconds in INT96, which old programs wrote, are cut."""
    from foretaste.data.preparation.spark_engine import SparkEngine
    from foretaste.data.preparation.spark_sources import register_views

    at = [10**18 + 499, 10**18 + 500, -499, -500, -1501, 1_234_567_890_123_456_789]
    rounded = [10**15, 10**15 + 1, 0, -1, -2, 1_234_567_890_123_457]
    cut = [moment // 1000 for moment in at]
    for zone, is_old, expected in ((None, 0, rounded), ("Asia/Tokyo", 0, rounded), (None, 1, cut)):
        place = tmp_path / f"{is_old}.parquet"
        table = pa.table({"time": pa.array(at, pa.timestamp("ns", zone))})
        pq.write_table(table, place, use_deprecated_int96_timestamps=bool(is_old))
        (file,) = open_sources(place, FileFormat())
        (view,) = register_views(spark, [file])
        kind: Kind = "moment" if zone is None else "instant"
        with DuckDBEngine(tmp_path / "unused", "1GB", 1) as engine:
            times = cast(engine.sql, file.columns["time"], kind)
            assert engine.run(f"SELECT {times} FROM {file.relation}") == [(n,) for n in expected]
        times = cast(SparkEngine.sql, view.columns["time"], kind)
        found = spark.sql(f"SELECT {times} FROM {view.relation}").collect()
        assert [time for (time,) in found] == expected


def test_files_that_are_written_alike_are_read_as_one(spark: Any, tmp_path: Path) -> None:
    """Other files are not, and a file that Spark would leave out is refused."""
    from foretaste.data.preparation.spark_sources import register_views

    plays = pa.table({"user": [n % 3 for n in range(9)], "item": list(range(9))})
    for day in ("1", "2"):
        for name in "abc":
            write(tmp_path / "plays" / f"day={day}" / f"{name}.parquet", plays)
        as_text = plays.set_column(0, "user", plays["user"].cast(pa.string()))
        write(tmp_path / "plays" / f"day={day}" / "d.parquet", as_text)
    views = register_views(spark, open_sources(tmp_path / "plays", FileFormat()))
    assert [spark.table(view.relation).count() for view in views] == [54, 18]
    hidden = write(tmp_path / "_plays.parquet", plays)
    with raises(InputError, whole(r"_plays\.parquet: Spark leaves out files named so")):
        register_views(spark, open_sources(hidden, FileFormat()))


def test_lists_and_a_table_are_prepared_like_files(spark: Any, tmp_path: Path) -> None:
    """Lists are local files of every compression and files that Spark names; a table of the
    catalogue describes the items."""
    named, local = tmp_path / "named", tmp_path / "local"
    named.mkdir()
    local.mkdir()
    parts = ("\ufeff7 1 2  3\r\n\r\n8,1\t,2\r\n", "9 2,3 ,1, \n10\n", "ana|é bolero 1")
    (local / "a.txt").write_bytes(parts[0].encode())
    (named / "b.txt.gz").write_bytes(gzip.compress(parts[1].encode()))
    (local / "c.txt.zst").write_bytes(pa.compress(parts[2].encode(), "zstd", asbytes=True))
    tags = [["a"], ["a", "b"], ["b"], None]
    goods = write(tmp_path / "goods.parquet", pa.table({"item_id": [1, 2, 3, 4], "tags": tags}))
    spark.read.parquet(goods.as_uri()).write.saveAsTable("goods")
    settings: dict[str, Any] = {"layout": "lists", "empty_ids": "drop", "features": ["tags"]}
    first, second = (
        prepare([local, second_part], tmp_path / engine, engine=engine, items=items, **settings)
        for engine, second_part, items in (
            ("duckdb", named, goods),
            ("spark", named.as_uri(), "table:goods"),
        )
    )
    for name in ("digest", "counts", "columns", "id_types", "filters"):
        assert getattr(second.manifest, name) == getattr(first.manifest, name)
    assert first.manifest.counts["num_rows_with_an_empty_id"] == 1
    assert first.manifest.counts["num_users_without_items"] == 1
    assert second.items.ids() == first.items.ids()
    assert first.features is not None
    assert second.features is not None
    assert second.features.names == first.features.names == (("tags", "a"), ("tags", "b"))


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (b"7 1 2\n8,1,,2\n", {}, r"b\.txt: item_id is empty"),
        (b"7 1 2\n8 1\n7 2\n", {}, r"b\.txt, line 1 and .*b\.txt, line 3: .* begin with '7'"),
        (b"7 1 2\n8 \xe9\n", {}, r"b\.txt, line 2: is not UTF-8 text"),
        (b"7 1 2\n", {"encoding": "latin-1"}, r"b\.txt: is read by engine spark as UTF-8 alone"),
    ],
)
def test_lists_that_spark_refuses(
    spark: Any, tmp_path: Path, content: bytes, settings: dict[str, Any], message: str
) -> None:
    for name, written in (("a.txt", b"1 2 3\n"), ("b.txt", content)):
        (tmp_path / name).write_bytes(written)
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    refuse(files, whole(message), engine="spark", layout="lists", **settings)
