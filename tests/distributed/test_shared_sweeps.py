"""Trainings of iALS by several ranks: the run that one process would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.distributed.collectives import Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.errors import TrainingError
from foretaste.models.baselines.config import IALSConfig
from foretaste.models.baselines.ials import IALS, BothSides
from foretaste.runs import Run
from tests.distributed.test_shared_trainings import assert_alike, resumed, run_by
from tests.ops.cases import random_histories
from tests.ranks import run_ranks
from tests.training.plans import make_plan
from tests.training.trainings import numbers_of, weights_of

NUM_USERS, NUM_ITEMS, FACTORS = 60, 45, 16
BOUNDS = {1: [0, 60], 2: [0, 20, 60], 3: [0, 20, 20, 60]}
"""Of users, of whom the second of three ranks has none."""


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_train_the_model_of_one_process(size: int, dataset: Dataset, tmp_path: Path) -> None:
    alone = run_by(1, "ials", dataset, tmp_path / "alone")
    assert_alike(run_by(size, "ials", dataset, tmp_path / "shared"), alone, 1e-4)


def test_ranks_answer_new_users(heldout_users: Dataset, tmp_path: Path) -> None:
    alone = run_by(1, "ials", heldout_users, tmp_path / "alone")
    assert_alike(run_by(2, "ials", heldout_users, tmp_path / "shared"), alone, 1e-4)


def test_ranks_go_on_as_if_nothing_had_been(dataset: Dataset, tmp_path: Path) -> None:
    """As many as before to the last byte, and others."""
    settings: dict[str, Any] = {"epochs": 4, "checkpoint_every_s": 0.0}
    whole = run_by(2, "ials", dataset, tmp_path / "whole", **settings)
    for size in (1, 2, 3):
        run_by(2, "ials", dataset, tmp_path / f"{size}", stop_after=2, **settings)
        run_ranks(resumed, size, tmp_path / f"{size}")
        run = Run.open(tmp_path / f"{size}")
        assert_alike(run, whole, 1e-4)
        if size == 2:
            assert weights_of(run) == weights_of(whole)
            assert numbers_of(run) == numbers_of(whole)


def test_fewer_users_and_items_than_ranks(tmp_path: Path) -> None:
    table = pa.table({"user_id": [1, 1, 2], "item_id": [5, 6, 5]})
    dataset = prepare(table, tmp_path / "data", PrepareConfig(protocol="none"))
    alone = run_by(1, "ials", dataset, tmp_path / "alone", eval_every="auto")
    shared = run_by(3, "ials", dataset, tmp_path / "shared", eval_every="auto")
    assert_alike(shared, alone, 1e-4)


def swept(ranks: Ranks) -> tuple[dict[str, Tensor], float, int, int]:
    """After two sweeps: the weights, a loss, the interactions held, and the bytes of a sweep."""
    starts, strategy = BOUNDS[ranks.size], strategy_of(ranks)
    users = range(starts[ranks.rank], starts[ranks.rank + 1])
    config = IALSConfig(factors=FACTORS, unobserved_weight=0.2)
    model = IALS(config, NUM_USERS, NUM_ITEMS, users if ranks.size > 1 else None)
    histories = random_histories(np.random.default_rng(5), NUM_USERS, NUM_ITEMS)
    own = histories[users.start : users.stop]
    model.count_items(own, ranks)
    plan = make_plan(seed=3)
    batch, step = strategy.batches_and_step(model, own, plan)
    assert isinstance(batch, BothSides)
    step(batch)
    before = ranks.num_bytes.total()
    loss = step(batch)
    num_bytes = ranks.num_bytes.total() - before
    ranks.sum_(loss)
    assert batch.num_samples == histories.item_index.numel()
    num_held = batch.histories.item_index.numel() + batch.of_items.item_index.numel()
    return model.state_dict(), float(loss), num_held, num_bytes


@pytest.mark.parametrize("size", [2, 3])
def test_each_side_is_solved_where_it_lives(size: int) -> None:
    """A rank holds its part of the interactions by user and by item, and sends its vectors."""
    ((alone, loss, num_interactions, num_bytes),) = run_ranks(swept, 1)
    assert num_bytes == 0
    parts = run_ranks(swept, size)
    assert sum(part[2] for part in parts) == num_interactions
    for weights, found_loss, num_held, num_bytes in parts:
        assert num_held < num_interactions
        assert found_loss == pytest.approx(loss, rel=1e-5)
        assert torch.equal(weights["item_factors"], parts[0][0]["item_factors"])
        torch.testing.assert_close(
            weights["item_factors"], alone["item_factors"], rtol=1e-3, atol=1e-5
        )
        # The users of the rank with the most, about as many items as any, and a Gramian.
        expected = 4 * FACTORS * (40 + NUM_ITEMS / size) + 8 * FACTORS**2
        assert expected <= num_bytes < 1.2 * expected + 200
    users_UD = torch.cat([part[0]["user_factors"] for part in parts])
    torch.testing.assert_close(users_UD, alone["user_factors"], rtol=1e-3, atol=1e-5)


def unsolved(ranks: Ranks) -> str:
    """The error of a sweep in which the last rank's users cannot be solved for."""
    starts, strategy = BOUNDS[ranks.size], strategy_of(ranks)
    users = range(starts[ranks.rank], starts[ranks.rank + 1])
    model = IALS(IALSConfig(factors=FACTORS), NUM_USERS, NUM_ITEMS, users)
    histories = random_histories(np.random.default_rng(5), NUM_USERS, NUM_ITEMS)
    own, plan = histories[users.start : users.stop], make_plan()
    model.count_items(own, ranks)
    batch, step = strategy.batches_and_step(model, own, plan)
    if ranks.rank == ranks.size - 1:
        model.item_factors.data.fill_(torch.nan)
    with pytest.raises(TrainingError) as caught:
        step(next(iter(batch.epoch(0))))
    return str(caught.value)


def test_what_one_rank_cannot_solve_ends_all() -> None:
    first, *others = run_ranks(unsolved, 2)
    assert "the weights became infinite or nan" in first
    assert others == [first]
