"""A training that failed by its own settings: every later command says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset
from foretaste.errors import RunError, SettingError, TrainingError
from foretaste.runs import Run, list_runs, load_model
from foretaste.training import blend, resume
from tests.training.trainings import events, run_of

WHY = (
    r"the training failed: the loss became (nan|inf) in epoch 1, step \d+ of \d+; lower --learning"
)


def test_a_failed_training_says_why_wherever_it_is_named(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(TrainingError, match="the loss became"):
        run_of("vae", dataset, path, learning_rate=1e30, batch_size=16)
    run = Run.open(path)
    with pytest.raises(RunError, match=WHY):
        load_model(run)
    with pytest.raises(SettingError, match=WHY):
        blend([run, run_of("popularity", dataset, tmp_path / "other")])
    (state,) = [one.state for one in list_runs(tmp_path) if one.path == path]
    assert state.startswith("failed: the loss became")


def test_a_resumed_training_logs_its_failure_once(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(TrainingError, match="the loss became"):
        run_of("vae", dataset, path, learning_rate=1e30, batch_size=16, checkpoint_every_s=0)
    assert len(events(Run.open(path), "failed")) == 1
    with pytest.raises(TrainingError, match="the loss became"):
        resume(path)
    assert len(events(Run.open(path), "failed")) == 1
