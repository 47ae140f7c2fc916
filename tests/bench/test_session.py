"""Shapes of data, generated data, and the part for a short measurement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretaste.bench.recommend import random_histories
from foretaste.bench.session import load_histories, parse_shape, shape_of
from foretaste.bench.train import keep_interactions, keep_users
from foretaste.data.histories import Histories
from foretaste.errors import SettingError

SHAPE = shape_of(60, 40, 500)


@pytest.fixture(scope="module")
def histories() -> Histories:
    return load_histories(SHAPE)


def test_the_cache_gives_back_what_was_generated(histories: Histories, tmp_path: Path) -> None:
    for _ in range(2):
        cached = load_histories(SHAPE, tmp_path / "data")
        assert np.array_equal(cached.offsets, histories.offsets)
        assert np.array_equal(cached.item_index, histories.item_index)
        assert cached.num_items == histories.num_items
    assert len(list((tmp_path / "data").iterdir())) == 1


@pytest.mark.parametrize("wanted", [7, 499, 900])
def test_interactions_are_kept_to_the_number(histories: Histories, wanted: int) -> None:
    part = keep_interactions(histories, wanted, seed=3)
    assert part.num_interactions == min(wanted, 500)
    assert part.num_users == histories.num_users
    cut = [
        user
        for user in range(part.num_users)
        if 0 < part.lengths()[user] < histories.lengths()[user]
    ]
    assert len(cut) <= 1
    for user in np.flatnonzero(part.lengths()):
        kept = part[user : user + 1].item_index
        assert np.array_equal(kept, histories[user : user + 1].item_index[: len(kept)])


def test_users_are_kept_whole(histories: Histories) -> None:
    assert keep_users(histories, 60, seed=3) is histories
    part = keep_users(histories, 9, seed=3)
    rows = {tuple(histories[user : user + 1].item_index) for user in range(60)}
    assert part.num_users == 9
    assert all(tuple(part[row : row + 1].item_index) in rows for row in range(9))


def test_random_histories_are_distinct_items_of_the_whole_catalogue() -> None:
    histories = random_histories(shape_of(300, 12, 1500), 5, seed=1)
    assert histories.lengths().tolist() == [5] * 300
    rows = histories.item_index.reshape(300, 5)
    assert (np.diff(rows) > 0).all()
    counts = np.bincount(rows.ravel(), minlength=12)
    assert counts.min() > 90, "each item is in 125 of the 300 on average"
    assert not np.array_equal(rows, random_histories(shape_of(300, 12, 1500), 5, 2).item_index)


@pytest.mark.parametrize("text", ["60x40x500", "60×40×500"])
def test_counts_are_spelled_out(text: str) -> None:
    shape = parse_shape(text, "neumf")
    assert (shape.num_users, shape.num_items, shape.num_interactions) == (60, 40, 500)


@pytest.mark.parametrize("text", ["ml-2m", "60x40"])
def test_unknown_shapes_are_refused(text: str) -> None:
    assert parse_shape("ml-20m", "vae").num_items == 20_108
    with pytest.raises(SettingError, match="use ml-100k, ml-1m, ml-20m or users"):
        parse_shape(text, "vae")
