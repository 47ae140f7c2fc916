"""Runs know no ranks: trained on some, stopped, gone on with on others, read by one process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from foretaste.data import Dataset, open_dataset
from foretaste.distributed.collectives import Ranks
from foretaste.runs import Run, load_model, verify
from foretaste.training import Callback, resume
from tests.ranks import run_ranks
from tests.training.trainings import events, numbers_of, run_of

SETTINGS: dict[str, dict[str, Any]] = {
    "vae": {"batch_size": 15, "checkpoint_every_s": 0.0},
    "gmf": {"batch_size": 1000, "checkpoint_every_s": 0.0},
}
STOPPED_AFTER = 7
"""Updates, of about four in an epoch: weights were kept once."""


class Copying(Callback):
    """Copies the run when it has a state of so many updates, as a kill would leave it then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_steps = 0

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.num_steps += 1
        if self.num_steps == STOPPED_AFTER + 1:
            shutil.copytree(self.path, self.path.with_name("stopped"))


def trained(ranks: Ranks, name: str, dataset: Path, path: Path) -> None:
    run_of(name, open_dataset(dataset), path, callback=Copying(path), **SETTINGS[name])


def resumed(ranks: Ranks, path: Path) -> None:
    resume(path, callback=Callback())


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(Run.open(path), "cpu").state_dict())


@pytest.mark.parametrize("name", ["vae", "gmf"])
def test_a_training_goes_on_with_any_number_of_ranks(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    """On as many as before with the same bytes; on others with the same steps, to rounding."""
    run_ranks(trained, 2, name, dataset.path, tmp_path / "whole")
    whole, stopped = Run.open(tmp_path / "whole"), tmp_path / "stopped"
    assert verify(stopped) == []
    for size in (1, 2, 3):
        path = tmp_path / f"on-{size}"
        shutil.copytree(stopped, path)
        run_ranks(resumed, size, path)
        run = Run.open(path)
        assert verify(path) == []
        assert [event["step"] for event in events(run, "resume")] == [STOPPED_AFTER]
        if size == 2:
            assert numbers_of(run) == numbers_of(whole)
            assert {p.name for p in path.iterdir()} == {p.name for p in whole.path.iterdir()}
        for weight, expected in zip(
            weights_of(path).values(), weights_of(whole.path).values(), strict=True
        ):
            torch.testing.assert_close(weight, expected, rtol=0.02, atol=0.002)
