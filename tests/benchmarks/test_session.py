"""Generated data of measurements: kept in a folder, and cut to a few updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.session import (
    CachedSession,
    TrainSteps,
    keep_interactions,
    keep_users,
    load_histories,
)
from foretaste.bench.session import shape_of
from foretaste.bench.train import bench_train
from foretaste.data.histories import Histories
from foretaste.data.synthetic import generate_histories
from tests.bench.rows import COMMON, MODELS

SHAPE = shape_of(60, 40, 500)


@pytest.fixture(scope="module")
def histories() -> Histories:
    return generate_histories(SHAPE)


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


@pytest.mark.parametrize("layout", ["shuffled", "grouped"])
def test_steps_hold_for_both_layouts(layout: Any, tmp_path: Path) -> None:
    options = TrainSteps(**COMMON, batch_size=(50,), steps=3)
    model = replace(MODELS["neumf"], batch_layout=layout)
    session = CachedSession("train", model, options, cache=tmp_path)
    bench_train(session, options)
    (row,) = session.rows
    assert row.case["updates"] == 3
    assert row.case["precision"] == "fp32", "what auto is on a CPU"
    assert len(list(tmp_path.iterdir())) == 1
