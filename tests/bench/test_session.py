"""Shapes of data, and random histories."""

from __future__ import annotations

import numpy as np
import pytest

from foretaste.bench.recommend import random_histories
from foretaste.bench.session import parse_shape, shape_of
from foretaste.errors import SettingError
from tests.messages import raises


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
    with raises(SettingError, "shape", text, "6040x3706x1000209"):
        parse_shape(text, "vae")
