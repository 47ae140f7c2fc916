"""The place of each interaction in the history of its user, worked out in plain Python."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, GivenSplit, Histories, prepare
from foretaste.errors import SettingError
from tests.data.conftest import PrepareText, WriteFile, refuse
from tests.data.test_protocols import hashed
from tests.messages import raises, says

Placed = dict[int, list[int]]


def in_order(dataset: Dataset, histories: Histories) -> Placed:
    """The items of each user, oldest first."""
    assert histories.position is not None
    order = histories.oldest_first()
    found = defaultdict(list)
    users, items = dataset.users.ids(), dataset.items.ids()
    for row, item in zip(histories.row_index(), histories.item_index[order], strict=True):
        found[users[row]].append(items[item])
    return dict(found)  # type: ignore[arg-type]


def expected_order(table: pa.Table, seed: int = 0) -> Placed:
    """The pairs by their earliest time, then by descending hash."""
    first: dict[tuple[int, int], int] = {}
    columns = (table[name].to_pylist() for name in ("user_id", "item_id", "timestamp"))
    for user, item, time in zip(*columns, strict=True):
        first[user, item] = min(time, first.get((user, item), time))
    pairs = sorted(first, key=lambda pair: hashed(seed, *pair), reverse=True)
    found = defaultdict(list)
    for user, item in sorted(pairs, key=lambda pair: first[pair]):
        found[user].append(item)
    return dict(found)


def random_table(num_rows: int = 3000, num_times: int = 12, num_users: int = 60) -> pa.Table:
    """Pairs that repeat, at few times: most places are ties."""
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "user_id": rng.integers(num_users, size=num_rows) + 3,
            "item_id": rng.integers(70, size=num_rows) + 11,
            "timestamp": rng.integers(num_times, size=num_rows),
        }
    )


@pytest.mark.parametrize("protocol", ["leave-one-out", "temporal", "held-out-users", "none"])
@pytest.mark.parametrize("num_times", [2, 12, 10**9])
def test_places_follow_time_and_then_the_hash_downwards(
    tmp_path: Path, protocol: str, num_times: int
) -> None:
    table = random_table(num_times=num_times)
    dataset = prepare(table, tmp_path / "out", protocol=protocol, seed=4)
    found = dataset.all_interactions()
    assert in_order(dataset, found) == expected_order(table, seed=4)
    assert found.position is not None
    for user in range(found.num_users):
        places = found[user : user + 1].position
        assert places is not None
        assert sorted(places.tolist()) == list(range(len(places)))


def given(num_times: int) -> tuple[GivenSplit, pa.Table]:
    table = random_table(num_times=num_times)
    return GivenSplit(train=table[:2000], validation=table[2000:2400], test=table[2400:]), table


def test_a_given_split_has_one_order(tmp_path: Path) -> None:
    """A pair of several parts has the place of its row in the first of them."""
    split, table = given(num_times=10**9)
    dataset = prepare(split, tmp_path / "out")
    found = in_order(dataset, dataset.all_interactions())
    parts = np.repeat(range(3), [2000, 400, 600])
    pairs = [*zip(table["user_id"].to_pylist(), table["item_id"].to_pylist(), strict=True)]
    first = dict(reversed([*zip(pairs, parts, strict=True)]))
    kept = table.filter([first[pair] == part for pair, part in zip(pairs, parts, strict=True)])
    assert found == expected_order(kept)


def test_ranks_of_a_given_split_begin_again_in_each_part(tmp_path: Path) -> None:
    parts = {"train": [8, 2, 5], "validation": [1, 9], "test": [4]}
    for name, items in parts.items():
        (tmp_path / f"{name}.txt").write_text(f"7 {' '.join(map(str, items))}\n")
    split = GivenSplit(**{name: tmp_path / f"{name}.txt" for name in parts})
    dataset = prepare(split, tmp_path / "out", layout="lists")
    assert in_order(dataset, dataset.all_interactions()) == {7: [8, 2, 5, 1, 9, 4]}


def test_a_given_split_without_times_has_no_order(tmp_path: Path) -> None:
    split, _ = given(num_times=3)
    parts = {name: one.drop_columns("timestamp") for name, one in split.parts().items()}
    dataset = prepare(GivenSplit(**parts), tmp_path / "out")
    assert not dataset.manifest.has_order
    # Times in one part alone order nothing.
    some = prepare(GivenSplit(**parts | {"train": split.train}), tmp_path / "some")
    assert not some.manifest.has_order
    says(some.manifest.notes["order"], "timestamp")
    assert some.manifest.digest == dataset.manifest.digest


def test_times_that_cannot_be_read_are_left_out_unless_they_are_asked_for(
    prepared: PrepareText, write: WriteFile
) -> None:
    text = "user,item,date\n1,5,2024-01-01\n1,6,soon\n2,5,2024-01-02\n2,6,2024-01-03\n"
    dataset = prepared(text, protocol="none")
    assert not dataset.manifest.has_order
    assert "time" not in dataset.manifest.columns
    says(dataset.manifest.notes["order"], "out.csv", 3, "soon")
    named = {"protocol": "none", "time_column": "date"}
    refuse(write(text), 3, "soon", **named)
    refuse(write(text), 3, "soon", protocol="leave-one-out")
    flags = pa.table({"user": [1, 1], "item": [5, 6], "date": [True, False]})
    refuse(flags, "date", **named)


@pytest.mark.parametrize(
    ("name", "is_found"),
    [("bought_on", True), ("purchaseDay", False), ("dateOfSale", True), ("candidate", False)],
)
def test_a_column_that_looks_like_times_is_named(
    prepared: PrepareText, name: str, is_found: bool
) -> None:
    dataset = prepared(f"user,item,{name}\n1,5,1\n1,6,2\n2,5,3\n", protocol="none")
    note = dataset.manifest.notes.get("order")
    assert (note is not None) == is_found
    if is_found:
        says(note, name, "--time-column")


def test_a_note_says_that_a_hash_orders_most(prepared: PrepareText) -> None:
    rows = [(user, item, f"2024-03-0{1 + item // 4}") for user in range(5) for item in range(8)]
    text = "user,item,date\n" + "".join(f"{user},{item},{day}\n" for user, item, day in rows)
    notes = prepared(text).manifest.notes
    # Six of seven neighbours are of one day.
    says(notes["ties"], "86%")
    halves = text.replace("2024-03-01", "2024-03-01 0{}:00")
    for hour in range(40):
        halves = halves.replace("{}", str(hour % 4), 1)
    assert "ties" not in prepared(halves, "halves").manifest.notes


def test_rows_are_an_order_if_asked_for(prepared: PrepareText, tmp_path: Path) -> None:
    text = "user,item,date\n1,7,5\n2,9,4\n1,3,9\n1,7,1\n1,5,0\n2,1,1\n1,2,1\n"
    dataset = prepared(text, order="rows")
    assert dataset.manifest.protocol == "leave-one-out"
    assert "time" not in dataset.manifest.columns
    assert in_order(dataset, dataset.all_interactions()) == {1: [7, 3, 5, 2], 2: [9, 1]}
    target = dataset.heldout("test").target
    assert dataset.items.ids(target.item_index) == [2]
    plain = prepared(text.replace("date", "x"), "plain", protocol="none")
    assert not plain.manifest.has_order


def test_rows_are_no_order_of_what_has_none(tmp_path: Path) -> None:
    table = random_table()
    for settings, *named in (
        ({"time_column": "timestamp"}, "order is rows", "time_column", "timestamp"),
        ({"protocol": "temporal"}, "protocol temporal"),
        ({"half_life": "9d"}, "half_life"),
        ({"engine": "spark"}, "order is rows", "engine", "spark"),
    ):
        refuse(table, *named, error=SettingError, order="rows", **settings)
    refuse([table, random_table()], 2, error=SettingError, order="rows")
    place = tmp_path / "shop.db"
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("CREATE TABLE t (user_id, item_id)")
        rows = [(1, item) for item in (5, 2, 8)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    url = f"sqlite:///{place}"
    settings = {"order": "rows", "protocol": "none"}
    with raises(SettingError, "--query"):
        prepare(url, tmp_path / "out", **settings)
    query = "SELECT * FROM t ORDER BY item_id DESC"
    dataset = prepare(url, tmp_path / "out", query=query, **settings)
    assert in_order(dataset, dataset.all_interactions()) == {1: [8, 5, 2]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_many_rows_and_threads_keep_the_order_of_rows(tmp_path: Path, kind: str) -> None:
    """Rows that several threads would read and write in any order: DuckDB gives a thread 32 MB of a
    CSV, and a row group of other sources."""
    num_rows, num_users = 600_000, 1009
    row = np.arange(num_rows)
    table: Any = pa.table({"user_id": row % num_users, "item_id": row * 7919 % 999_983})
    if kind == "csv":
        note = pa.repeat("-" * 60, num_rows)
        pa_csv.write_csv(table.append_column("note", note), tmp_path / "rows.csv")
    if kind == "parquet":
        pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50_000)
    source = table if kind == "frame" else tmp_path / f"rows.{kind}"
    dataset = prepare(source, tmp_path / "out", order="rows", protocol="none", threads=4)
    found = dataset.all_interactions()
    items = found.item_index[found.oldest_first()]
    assert found.num_interactions == num_rows  # no pair repeats
    for user in range(0, num_users, 97):
        expected = table["item_id"].to_numpy()[user::num_users]
        of_user = items[found.offsets[user] : found.offsets[user + 1]]
        assert dataset.items.ids(of_user) == expected.tolist()


def test_the_item_left_out_has_the_highest_place(tmp_path: Path) -> None:
    dataset = prepare(random_table(num_times=3), tmp_path / "out")
    highest = dataset.all_interactions().lengths() - 1
    for split, below in (("test", 0), ("validation", 1)):
        target = dataset.heldout(split).target  # type: ignore[arg-type]
        users = dataset.heldout(split).user_index  # type: ignore[arg-type]
        assert target.position is not None
        assert target.position.tolist() == (highest[users] - below).tolist()


def test_the_order_is_read_on_request_alone(tmp_path: Path) -> None:
    dataset = prepare(random_table(), tmp_path / "out")
    everyone = range(dataset.manifest.num_train_users)
    assert dataset.manifest.has_order
    assert dataset.train.position is None
    assert dataset.train_part(everyone).position is None
    assert dataset.heldout("validation").history.position is None
    whole = dataset.train_part(everyone, order=True)
    assert whole.position is not None
    some = dataset.train_part(range(10, 30), order=True)
    assert in_order(dataset, whole[10:30]) == in_order(dataset, some)
    history = dataset.heldout("validation", order=True).history
    assert history.position is not None
    # Only training is read: the places of held-out items are gaps.
    assert (history.position < dataset.all_interactions().lengths().max() - 2).all()


def test_weights_do_not_change_places(tmp_path: Path) -> None:
    table = random_table().append_column("plays", [np.arange(1, 3001)])
    dataset = prepare(table, tmp_path / "out", weight_column="plays")
    plain = prepare(table, tmp_path / "plain")
    names = pq.read_schema(dataset.path / "train.parquet").names
    assert names == ["user_index", "item_index", "position", "weight"]
    positions = [one.all_interactions().position for one in (dataset, plain)]
    assert np.array_equal(*positions)


def test_data_without_times_have_no_order(tmp_path: Path) -> None:
    table = random_table().drop_columns("timestamp")
    for protocol in ("held-out-users", "leave-one-out", "none"):
        dataset = prepare(table, tmp_path / protocol, protocol=protocol)
        assert not dataset.manifest.has_order
        assert dataset.all_interactions().position is None
        names = pq.read_schema(dataset.path / "train.parquet").names
        assert names == ["user_index", "item_index"]
