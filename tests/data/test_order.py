"""The place of each interaction in the history of its user, worked out in plain Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, Histories, prepare
from tests.data.test_protocols import hashed

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
    """By the earliest time of each pair, then by the hash, downwards."""
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


@pytest.mark.parametrize("protocol", ["leave-one-out", "temporal"])
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
    # Training alone: the places of what is held out are gaps.
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
