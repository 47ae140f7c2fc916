"""A training that failed by its own settings: every later command says why."""

from __future__ import annotations

import re
from pathlib import Path

from foretaste.data import Dataset
from foretaste.errors import RunError, SettingError, TrainingError
from foretaste.runs import Run, list_runs, load_model
from foretaste.training import blend, resume
from tests.messages import raises, says
from tests.training.trainings import events, run_of

WHY = (re.compile("nan|inf"), 1, re.compile(r"\d+"), 4, "--learning-rate", 1e30)


def test_a_failed_training_says_why_wherever_it_is_named(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with raises(TrainingError, *WHY):
        run_of("vae", dataset, path, learning_rate=1e30, batch_size=16)
    run = Run.open(path)
    with raises(RunError, path, *WHY):
        load_model(run)
    with raises(SettingError, path, *WHY):
        blend([run, run_of("popularity", dataset, tmp_path / "other")])
    (state,) = [one.state for one in list_runs(tmp_path) if one.path == path]
    says(state, *WHY)


def test_a_resumed_training_logs_its_failure_once(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with raises(TrainingError, *WHY):
        run_of("vae", dataset, path, learning_rate=1e30, batch_size=16, checkpoint_every_s=0)
    assert len(events(Run.open(path), "failed")) == 1
    with raises(TrainingError, *WHY):
        resume(path)
    assert len(events(Run.open(path), "failed")) == 1
