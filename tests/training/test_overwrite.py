"""A run that replaces another when its training begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretaste
from foretaste.data import Dataset
from foretaste.errors import ForetasteError, RunError, SettingError
from foretaste.runs import Run
from foretaste.runs.places import training_lock
from foretaste.training import LogConfig, blend, resume
from tests.training.test_interruption import Killing
from tests.training.trainings import contents, events, numbers_of, run_of, weights_of


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory for the run, its log and its results, and nothing else."""
    path = tmp_path / "place"
    path.mkdir()
    return path


def logs(place: Path) -> LogConfig:
    return LogConfig(log_path=place / "log.jsonl", results_dir=place / "results")


def test_run_log_and_results_are_replaced_and_a_stopped_training_goes_on(
    dataset: Dataset, place: Path, tmp_path: Path
) -> None:
    run_of("popularity", dataset, place / "run", logs=logs(place))
    settings: dict[str, Any] = {"overwrite": True, "logs": logs(place), "batch_size": 1000}
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, place / "run", callback=Killing("epoch 2"), **settings)
    stopped = Run.open(place / "run")
    assert stopped.config.model == "gmf"
    assert (place / "log.jsonl").read_bytes() == stopped.log.path.read_bytes()
    with pytest.raises(SettingError, match="without --overwrite"):
        resume(stopped, logs=logs(place))
    run = resume(stopped, logs=logs(place), overwrite=True)
    alone = run_of("gmf", dataset, tmp_path / "alone", batch_size=1000)
    assert weights_of(run) == weights_of(alone)
    assert numbers_of(run) == numbers_of(alone)
    assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    assert len(json.loads((place / "results" / "metrics.json").read_text())["epoch"]) == 3
    assert sorted(path.name for path in place.iterdir()) == ["log.jsonl", "results", "run"]


def test_an_unfinished_run_is_replaced_too(dataset: Dataset, place: Path) -> None:
    settings: dict[str, Any] = {"overwrite": True, "batch_size": 1000, "epochs": 2}
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, place / "run", callback=Killing("epoch 1"), **settings)
    run = run_of("gmf", dataset, place / "run", seed=3, **settings)
    assert (run.path, run.config.asked["seed"]) == (place / "run", 3)
    assert len(events(run, "epoch")) == 2
    assert [path.name for path in place.iterdir()] == ["run"]


def test_a_run_may_replace_one_that_it_consists_of_and_none_that_it_begins_with(
    dataset: Dataset, place: Path
) -> None:
    run = run_of("gmf", dataset, place / "run", epochs=1)
    before = contents(place)
    with pytest.raises(
        SettingError,
        match=r"cannot overwrite .*run: the training starts from its weights; choose another",
    ):
        run_of("gmf", dataset, place / "run", epochs=1, overwrite=True, start_from=run)
    assert contents(place) == before
    other = foretaste.train("popularity", dataset, run=place / "other")
    blended = blend([run, other], weights=(0.5, 0.5), run=other.path, overwrite=True)
    assert Run.open(other.path).config.model == blended.config.model == "blend"


def test_no_run_is_replaced_through_a_link(dataset: Dataset, place: Path) -> None:
    foretaste.train("popularity", dataset, run=place / "monday")
    (place / "shop").symlink_to("monday")
    with pytest.raises(RunError, match=r"shop is a link to .*monday; to replace that run, name it"):
        foretaste.train("ease", dataset, run=place / "shop", overwrite=True)
    assert Run.open(place / "monday").config.model == "popularity"


def test_what_is_no_run_no_log_or_in_use_is_never_replaced(dataset: Dataset, place: Path) -> None:
    foretaste.train("popularity", dataset, run=place / "run")
    model = place / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    before = contents(place)
    with pytest.raises(RunError, match="model is no run, and nothing else is replaced"):
        foretaste.train("ease", dataset, run=model, overwrite=True)
    no_log = LogConfig(log_path=model / "config.json")
    with pytest.raises(SettingError, match="already; it is no log, and nothing else is replaced"):
        foretaste.train("ease", dataset, run=place / "run", overwrite=True, logs=no_log)
    with training_lock(place / "run"):
        with pytest.raises(RunError, match="is being trained by"):
            foretaste.train("ease", dataset, run=place / "run", overwrite=True)
        with pytest.raises(RunError, match="is being trained by"):
            Run.create(
                place / "run",
                config=Run.open(place / "run").config,
                dataset=dataset,
                overwrite=True,
            )
    assert contents(place) == before


@pytest.mark.parametrize(
    "mistake",
    [
        {"device": "cuda:99"},
        {"candidates": "fixed"},
        {"start_from": "nothing"},
        {"dataset": "nothing"},
        {"select_by": "ndcg@0"},
    ],
)
def test_a_mistake_removes_nothing(mistake: dict[str, Any], dataset: Dataset, place: Path) -> None:
    foretaste.train("popularity", dataset, run=place / "run", logs=logs(place))
    before = contents(place)
    asked = {"dataset": dataset, "run": place / "run", "overwrite": True, "logs": logs(place)}
    with pytest.raises(ForetasteError):
        foretaste.train("gmf", **asked | mistake)
    assert contents(place) == before


def test_a_lock_that_ends_after_its_run_was_replaced_leaves_that_of_the_new_run(
    dataset: Dataset, place: Path
) -> None:
    foretaste.train("popularity", dataset, run=place / "run")
    with training_lock(place / "run"):
        (place / "run").rename(place / "old")
        foretaste.train("popularity", dataset, run=place / "run")
        (place / "run" / "training.lock").write_text("another process")
    assert (place / "run" / "training.lock").exists()
