"""Trainings of Mult-VAE and Mult-DAE by several ranks: the run that one process would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.runs import Run
from tests.distributed.test_shared_trainings import assert_alike, resumed, run_by
from tests.ranks import run_ranks
from tests.training.trainings import numbers_of, weights_of

SMALL: dict[str, Any] = {"batch_size": 20, "learning_rate": 0.003}


@pytest.mark.parametrize(
    ("name", "size", "precision"),
    [
        ("vae", 2, "fp32"),
        ("dae", 3, "fp32"),
        ("vae", 3, "bf16"),
        ("vae", 2, "fp16"),
        ("recvae", 2, "fp32"),
    ],
)
def test_ranks_train_the_model_of_one_process(
    name: str, size: int, precision: str, dataset: Dataset, tmp_path: Path
) -> None:
    settings = SMALL | {"precision": precision}
    alone = run_by(1, name, dataset, tmp_path / "alone", **settings)
    shared = run_by(size, name, dataset, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 1e-3 if precision == "fp32" else 0.05)


@pytest.mark.parametrize(
    ("name", "precision"), [("vae", "fp32"), ("vae", "fp16"), ("recvae", "fp32")]
)
def test_ranks_go_on_as_if_nothing_had_been(
    name: str, precision: str, dataset: Dataset, tmp_path: Path
) -> None:
    settings = SMALL | {"precision": precision}
    whole = run_by(2, name, dataset, tmp_path / "whole", **settings)
    run_by(2, name, dataset, tmp_path / "run", stop_after=5, **settings)
    run_ranks(resumed, 2, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def test_other_ranks_go_on(dataset: Dataset, tmp_path: Path) -> None:
    settings = SMALL | {"checkpoint_every_s": 0.0}
    alone = run_by(1, "vae", dataset, tmp_path / "alone", **settings)
    run_by(3, "vae", dataset, tmp_path / "run", stop_after=2, **settings)
    for size, stop_after in ((1, 3), (2, 0)):
        run_ranks(resumed, size, tmp_path / "run", stop_after)
    assert_alike(Run.open(tmp_path / "run"), alone, 1e-3)


def test_fewer_users_than_ranks(tmp_path: Path) -> None:
    """Some ranks have no user of a batch, and all states are saved."""
    table = pa.table({"user_id": [1, 1, 2], "item_id": [5, 6, 5]})
    dataset = prepare(table, tmp_path / "data", PrepareConfig(protocol="none"))
    settings = SMALL | {"eval_every": "auto"}
    alone = run_by(1, "dae", dataset, tmp_path / "alone", **settings)
    shared = run_by(3, "dae", dataset, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 1e-3)
    run_by(3, "dae", dataset, tmp_path / "run", stop_after=1, **settings)
    run_ranks(resumed, 3, tmp_path / "run")
    assert weights_of(Run.open(tmp_path / "run")) == weights_of(shared)
