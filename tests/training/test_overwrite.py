"""A run that replaces another once its training is finished."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from socket import gethostname
from typing import Any

import pyarrow as pa
import pytest

import foretaste
from foretaste.data import Dataset
from foretaste.errors import ForetasteError, RunError, SettingError
from foretaste.runs import Run, list_runs
from foretaste.runs.config import RunConfig
from foretaste.runs.places import training_lock
from foretaste.runs.run import load_model
from foretaste.training import Callback, LogConfig, blend, resume
from foretaste.training.callbacks import EpochReport
from tests.messages import raises
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


def stopped_at(moment: str, dataset: Dataset, path: Path, **settings: Any) -> None:
    """A training of `run_of` that Ctrl-C stops."""
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, path, callback=Killing(moment), batch_size=1000, **settings)


def test_a_stopped_training_leaves_the_old_run_and_the_same_command_resumes(
    dataset: Dataset, place: Path, tmp_path: Path
) -> None:
    old = run_of("popularity", dataset, place / "run", logs=logs(place))
    before = contents(old.path)
    asked: dict[str, Any] = {"overwrite": True, "logs": logs(place)}
    stopped_at("epoch 2", dataset, old.path, **asked)
    assert contents(old.path) == before
    begun = Run.open(place / "run.next")
    assert (begun.config.model, begun.is_finished) == ("gmf", False)
    assert begun.why_unfinished().endswith(f"resume with: foretaste train --resume {old.path}")
    assert (place / "log.jsonl").read_bytes() == begun.log.path.read_bytes()
    states = {listed.path.name: listed.state for listed in list_runs(place)}
    assert states == {"run": "finished", "run.next": "not finished"}
    stopped_at("step 3-1", dataset, old.path, **asked)
    with raises(SettingError, "log_path", place / "log.jsonl", "--overwrite"):
        resume(old.path, logs=logs(place))
    run = resume(old.path, logs=logs(place), overwrite=True)
    alone = run_of("gmf", dataset, tmp_path / "alone", batch_size=1000)
    assert run.path == old.path
    assert weights_of(Run.open(run.path)) == weights_of(alone)
    assert numbers_of(run) == numbers_of(alone)
    assert len(events(run, "resume")) == 2
    assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    results = place / "results"
    assert len(json.loads((results / "metrics.json").read_text())["epoch"]) == 3
    assert json.loads((results / "args.json").read_text())["run"] == str(run.path)
    assert sorted(path.name for path in place.iterdir()) == ["log.jsonl", "results", "run"]
    assert not (run.path / "training.lock").exists()


def test_another_request_starts_afresh_and_replaces_an_unfinished_run(
    dataset: Dataset, place: Path
) -> None:
    path = place / "run"
    stopped_at("epoch 1", dataset, path)  # at its place, which was free
    before = contents(path)
    stopped_at("epoch 1", dataset, path, overwrite=True, seed=2)
    assert contents(path) == before
    run = run_of("gmf", dataset, path, seed=3, batch_size=1000, overwrite=True)
    assert (run.path, run.config.asked["seed"], events(run, "resume")) == (path, 3, [])
    assert [one.name for one in place.iterdir()] == ["run"]
    stopped_at("epoch 1", dataset, place / "first", overwrite=True)
    assert run_of("gmf", dataset, place / "first", batch_size=1000, overwrite=True).is_finished


def test_an_unfinished_run_that_is_removed_during_the_preparation_is_begun_anew(
    dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    stopped_at("epoch 1", dataset, place / "run")

    class Removing(Callback):
        def prepared(self, source: str, dataset: Dataset) -> None:
            (place / "run").rename(place / "away")

    plays = pa.table({"user_id": [1, 1, 2], "item_id": [1, 2, 1]})
    new: dict[str, Any] = {"protocol": "none", "run": "run", "callback": Removing()}
    before = contents(place / "run")["metrics.jsonl"]
    log = Path("log.jsonl")
    log.write_bytes(before)
    with raises(SettingError, "log_path", log):
        foretaste.train("popularity", plays, logs=LogConfig(log_path=log), **new)
    assert log.read_bytes() == before
    (place / "away").rename("run")
    run = foretaste.train("popularity", plays, **new)
    assert (run.config.model, run.is_finished) == ("popularity", True)


def test_files_of_a_training_in_the_run_that_it_replaces_go_with_the_new_one(
    dataset: Dataset, place: Path
) -> None:
    path = place / "run"
    inside = LogConfig(log_path=path / "log.jsonl", results_dir=path)
    run_of("popularity", dataset, path, logs=inside)
    own = LogConfig(log_path=path / "metrics.jsonl")
    for number, chosen in enumerate((inside, own), start=1):
        before = contents(path)
        stopped_at(f"epoch {number}", dataset, path, overwrite=True, logs=chosen)
        assert contents(path) == before
    run = run_of("gmf", dataset, path, logs=inside, overwrite=True)
    assert (path / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    assert (path / "args.json").exists()


def test_a_run_may_replace_its_own_part_or_start(dataset: Dataset, place: Path) -> None:
    run = run_of("gmf", dataset, place / "run", epochs=1)
    weights = run.open_weights().digest
    again: dict[str, Any] = {"epochs": 2, "overwrite": True, "start_from": run}
    stopped_at("step 1-1", dataset, run.path, **again)
    before = contents(place)
    with raises(RunError, place / "run.next"):
        run_of("gmf", dataset, run.path, **again | {"start_from": place / "run.next"})
    assert contents(place) == before
    run = run_of("gmf", dataset, run.path, batch_size=1000, **again)
    assert run.config.start["from"]["weights_sha256"] == weights != run.open_weights().digest
    other = foretaste.train("popularity", dataset, run=place / "other")
    blended = blend([run, other], weights=(0.5, 0.5), run=other.path, overwrite=True)
    assert Run.open(other.path).config.model == blended.config.model == "blend"


def test_the_lock_is_on_the_run_that_is_replaced(dataset: Dataset, place: Path) -> None:
    run = foretaste.train("popularity", dataset, run=place / "run")

    class Looking(Callback):
        def epoch_done(self, report: EpochReport) -> None:
            with raises(RunError, run.path, os.getpid(), gethostname()):
                foretaste.train("ease", dataset, run=run.path, overwrite=True)
            with raises(RunError, run.path, os.getpid(), gethostname()):
                resume(run.path)
            assert load_model(Run.open(run.path)).name == "popularity"

    run_of("gmf", dataset, run.path, epochs=1, overwrite=True, callback=Looking())
    assert load_model(Run.open(run.path)).name == "gmf"


def test_room_for_both_runs_is_asked_for_before_the_first_epoch(
    dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = foretaste.train("popularity", dataset, run=place / "run")
    before = contents(place)
    free = shutil.disk_usage(place)._replace(free=2**10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with raises(RunError, place / "run.next", "1 MiB", place, "1 MiB"):
        run_of("gmf", dataset, run.path, overwrite=True)
    assert contents(place) == before
    # Where no run is replaced, the new one needs no room beside it.
    assert run_of("popularity", dataset, place / "new", overwrite=True).is_finished


@pytest.mark.parametrize(("model", "option"), [("gmf", "--from"), ("popularity", "--like")])
def test_a_finished_run_that_a_kill_kept_from_its_place_takes_it(
    model: str, option: str, dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = foretaste.train("ease", dataset, run=place / "run")

    def fail(run: Run) -> None:
        raise RunError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Run, "take_place", fail)
        with pytest.raises(RunError, match="killed"):
            run_of(model, dataset, old.path, overwrite=True)
    waiting = contents(place / "run.next")
    assert Run.open(old.path).config.model == "ease"
    run = resume(old.path)
    assert (run.path, contents(run.path)) == (old.path, waiting)
    # A kill may leave the replaced run beside the new one: it is older.
    stale = RunConfig(**vars(old.config) | {"created": "2020-01-01T00:00:00+00:00"})
    Run.create(place / "run.next", config=stale, dataset=dataset)
    with raises(RunError, old.path, f"{option} {old.path}"):
        resume(old.path)
    assert run_of("ease", dataset, run.path, overwrite=True).config.model == "ease"
    assert [path.name for path in place.iterdir()] == ["run"]


def test_a_run_of_its_own_beside_the_replaced_one_stays(dataset: Dataset, place: Path) -> None:
    for name in ("run", "run.next"):
        foretaste.train("popularity", dataset, run=place / name)
    before = contents(place)
    with raises(RunError, place / "run.next", place / "run"):
        foretaste.train("ease", dataset, run=place / "run", overwrite=True)
    assert contents(place) == before


def test_a_run_is_resumed_from_within(
    dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with raises(RunError, "."):
        foretaste.train("popularity", dataset, run=".", overwrite=True)
    run = foretaste.train("popularity", dataset, run=place / "run")
    monkeypatch.chdir(run.path)
    with raises(RunError, run.path, f"--like {run.path}"):
        resume(".")
    for inside in (run.path, place / "run.next"):
        stopped_at("epoch 1", dataset, run.path, overwrite=True)
        monkeypatch.chdir(inside)
        assert resume(".").path == run.path
        assert [one.name for one in place.iterdir()] == ["run"]


def test_no_run_is_replaced_through_a_link(dataset: Dataset, place: Path) -> None:
    foretaste.train("popularity", dataset, run=place / "monday")
    (place / "shop").symlink_to("monday")
    with raises(RunError, place / "shop", place / "monday"):
        foretaste.train("ease", dataset, run=place / "shop", overwrite=True)
    assert Run.open(place / "monday").config.model == "popularity"


def test_overwrite_never_replaces_other_files_or_runs_in_use(dataset: Dataset, place: Path) -> None:
    foretaste.train("popularity", dataset, run=place / "run")
    model = place / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    before = contents(place)
    with raises(RunError, model):
        foretaste.train("ease", dataset, run=model, overwrite=True)
    no_log = LogConfig(log_path=model / "config.json")
    with raises(SettingError, "log_path", model / "config.json"):
        foretaste.train("ease", dataset, run=place / "run", overwrite=True, logs=no_log)
    with training_lock(place / "run"):
        with raises(RunError, place / "run", os.getpid(), gethostname()):
            foretaste.train("ease", dataset, run=place / "run", overwrite=True)
        with raises(RunError, place / "run", os.getpid(), gethostname()):
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


def test_a_lock_of_a_replaced_run_leaves_the_new_runs_lock(dataset: Dataset, place: Path) -> None:
    foretaste.train("popularity", dataset, run=place / "run")
    with training_lock(place / "run"):
        (place / "run").rename(place / "old")
        foretaste.train("popularity", dataset, run=place / "run")
        (place / "run" / "training.lock").write_text("another process")
    assert (place / "run" / "training.lock").exists()
