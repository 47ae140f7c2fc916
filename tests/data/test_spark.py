"""Spark prepares the dataset that DuckDB prepares, from the same files and settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, GivenSplit, prepare
from foretaste.runs.verification import verify
from tests.data.hostile_rows import COLUMNS, ITEMS, hostile_rows, write_csv, write_json
from tests.spark import quick_session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        "FORETASTE_TEST_SPARK" not in os.environ,
        reason="takes minutes of Java: set FORETASTE_TEST_SPARK=1",
    ),
]

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
    write_csv(folder / "logs" / "shop=two" / "b.tsv", ROWS[half:])
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
        rows_of_file=100,
    ),
    "given": Case(split, {"target_in_candidates": "drop"}, num_partitions=1, rows_of_file=40),
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
