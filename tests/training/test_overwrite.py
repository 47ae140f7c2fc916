"""A run that replaces another: what was there stays until the new one is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretaste
from foretaste.data import Dataset
from foretaste.errors import ForetasteError, RunError, SettingError
from foretaste.runs import Run, places
from foretaste.runs.places import training_lock
from foretaste.training import LogConfig, resume
from foretaste.training.callbacks import Callback, EpochReport, TrainingSummary
from foretaste.training.logs import Results
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


class Watching(Callback):
    """Notes what is in a directory after every epoch."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.seen: list[dict[str, bytes]] = []

    def epoch_done(self, report: EpochReport) -> None:
        found = contents(self.place)
        self.seen.append({name: found[name] for name in found if not name.startswith(".")})


def test_run_log_and_results_stay_until_the_new_ones_are_finished(
    dataset: Dataset, place: Path, tmp_path: Path
) -> None:
    run_of("gmf", dataset, place / "run", logs=logs(place))
    before, watching = contents(place), Watching(place)
    settings = {"epochs": 4, "logs": logs(place), "seed": 2}
    run = run_of("gmf", dataset, place / "run", overwrite=True, callback=watching, **settings)
    assert watching.seen == [before] * 4
    assert run.path == place / "run"
    assert len(events(run, "epoch")) == 4
    alone = run_of("gmf", dataset, tmp_path / "alone", epochs=4, seed=2)
    assert weights_of(Run.open(place / "run")) == weights_of(alone)
    assert numbers_of(run) == numbers_of(alone)
    assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    assert len(json.loads((place / "results" / "metrics.json").read_text())["epoch"]) == 4
    named = json.loads((place / "results" / "args.json").read_text())["run"]
    assert named == str(run.path.resolve())
    assert sorted(path.name for path in place.iterdir()) == ["log.jsonl", "results", "run"]


def test_a_killed_training_leaves_the_earlier_run_and_goes_on(
    dataset: Dataset, place: Path, tmp_path: Path
) -> None:
    run_of("gmf", dataset, place / "run", logs=logs(place))
    before = contents(place)
    with pytest.raises(KeyboardInterrupt):
        run_of(
            "gmf",
            dataset,
            place / "run",
            overwrite=True,
            seed=2,
            logs=logs(place),
            callback=Killing("epoch 2"),
        )
    kept = contents(place)
    assert {name: kept[name] for name in before} == before
    run = resume(place / ".run.next", logs=logs(place))
    assert run.path == place / "run"
    whole = run_of("gmf", dataset, tmp_path / "whole", seed=2)
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)
    assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    assert sorted(path.name for path in place.iterdir()) == ["log.jsonl", "results", "run"]


def test_a_run_that_was_finished_but_not_put_in_place_is_put_there(
    dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of("gmf", dataset, place / "run")
    with monkeypatch.context() as patch:
        patch.setattr(
            "foretaste.runs.places.replace_directory",
            lambda *_: (_ for _ in ()).throw(OSError),
        )
        with pytest.raises(RunError, match="run cannot be written"):
            run_of("gmf", dataset, place / "run", overwrite=True, seed=2)
    assert Run.open(place / "run").config.asked["seed"] != 2
    assert resume(place / ".run.next").config.asked["seed"] == 2
    assert Run.open(place / "run").config.asked["seed"] == 2


def test_the_next_replacement_begins_anew(dataset: Dataset, place: Path) -> None:
    run_of("gmf", dataset, place / "run")
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, place / "run", overwrite=True, callback=Killing("epoch 2"))
    run = run_of("gmf", dataset, place / "run", overwrite=True, seed=3)
    assert (run.path, run.config.asked["seed"]) == (place / "run", 3)
    assert [path.name for path in place.iterdir()] == ["run"]


def test_overwriting_nothing_is_an_ordinary_training(dataset: Dataset, place: Path) -> None:
    for path in (place / "new", place / "empty"):
        (place / "empty").mkdir(exist_ok=True)
        run = run_of("gmf", dataset, path, overwrite=True, logs=logs(place))
        assert run.path == path
        assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()


def test_a_run_may_replace_the_one_it_begins_with(dataset: Dataset, place: Path) -> None:
    first = weights_of(run_of("gmf", dataset, place / "run"))
    run = run_of("gmf", dataset, place / "run", overwrite=True, start_from=place / "run")
    assert weights_of(run) != first
    assert list(events(run, "start")[0]["started_from"]) == [str(place / "run")]


def test_a_link_to_a_run_stays_a_link(dataset: Dataset, place: Path) -> None:
    run_of("gmf", dataset, place / "monday")
    (place / "shop").symlink_to("monday")
    run_of("gmf", dataset, place / "shop", overwrite=True, seed=2)
    assert (place / "shop").readlink() == Path("monday")
    assert Run.open(place / "monday").config.asked["seed"] == 2


def test_a_model_that_is_fitted_replaces_a_run_too(dataset: Dataset, place: Path) -> None:
    run_of("gmf", dataset, place / "run")
    foretaste.train("popularity", dataset, run=place / "run", overwrite=True)
    assert Run.open(place / "run").config.model == "popularity"


def test_what_is_no_run_no_log_or_in_use_is_never_replaced(dataset: Dataset, place: Path) -> None:
    notes = place / "notes"
    notes.mkdir()
    (notes / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="notes is no run, and nothing else is replaced"):
        run_of("gmf", dataset, notes, overwrite=True)
    with pytest.raises(SettingError, match="already; it is no log, and nothing else is replaced"):
        run_of(
            "gmf", dataset, place / "run", overwrite=True,
            logs=LogConfig(log_path=notes / "notes.txt"),
        )  # fmt: skip
    assert (notes / "notes.txt").read_text() == "mine"
    run_of("gmf", dataset, place / "run")
    with training_lock(place / "run"), pytest.raises(RunError, match="is being trained by"):
        run_of("gmf", dataset, place / "run", overwrite=True)
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, place / "run", overwrite=True, callback=Killing("epoch 2"))
    with training_lock(place / ".run.next"), pytest.raises(RunError, match="is being trained by"):
        run_of("gmf", dataset, place / "run", overwrite=True)


@pytest.mark.parametrize(
    "mistake", [{"device": "cuda:99"}, {"candidates": "fixed"}, {"start_from": "nothing"}]
)
def test_a_mistake_removes_nothing(mistake: dict[str, Any], dataset: Dataset, place: Path) -> None:
    """A training that is stopped still goes on, after a command that could not begin."""
    run_of("gmf", dataset, place / "run")
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, place / "run", overwrite=True, seed=2, callback=Killing("epoch 2"))
    before = contents(place)
    with pytest.raises(ForetasteError):
        run_of("gmf", dataset, place / "run", overwrite=True, **mistake)
    assert contents(place) == before
    assert resume(place / ".run.next").config.asked["seed"] == 2


def test_a_dataset_that_is_not_there_removes_nothing(dataset: Dataset, place: Path) -> None:
    run_of("gmf", dataset, place / "run")
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, place / "run", overwrite=True, callback=Killing("epoch 2"))
    before = contents(place)
    with pytest.raises(ForetasteError):
        foretaste.train("gmf", place / "none", run=place / "run", overwrite=True)
    assert contents(place) == before


def test_no_other_training_removes_a_run_about_to_take_its_place(
    dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is let go before, and another replacement of the same run may come then."""
    run_of("gmf", dataset, place / "run")
    put_there = places.replace_directory

    def late(new: Path, path: Path) -> None:
        monkeypatch.undo()
        waits = ".run.next is finished and waits to take the place of .*run; put it there with"
        with pytest.raises(RunError, match=waits):
            run_of("gmf", dataset, place / "run", overwrite=True, seed=3)
        with pytest.raises(RunError, match=waits):
            places.make_room(new)
        put_there(new, path)

    monkeypatch.setattr(places, "replace_directory", late)
    assert run_of("gmf", dataset, place / "run", overwrite=True, seed=2).config.asked["seed"] == 2
    assert Run.open(place / "run").config.asked["seed"] == 2


@pytest.mark.parametrize("name", ["run", "new"])
def test_a_log_that_cannot_be_written_leaves_the_finished_run_to_go_on_with(
    name: str, dataset: Dataset, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of("gmf", dataset, place / "run", logs=logs(place))
    before = contents(place)
    command = f"go on with: foretaste train --resume .*{name}.* --log-path .* --overwrite"
    with monkeypatch.context() as patch:
        patch.setattr(Results, "begin", lambda *_: (_ for _ in ()).throw(RunError("full")))
        with pytest.raises(RunError, match=command):
            run_of("gmf", dataset, place / name, overwrite=True, seed=2, logs=logs(place))
    kept = contents(place)
    assert all(kept[path] == before[path] for path in before if path != "log.jsonl")
    waiting = place / (".run.next" if name == "run" else name)
    run = resume(waiting, logs=logs(place), overwrite=True)
    assert (run.path, run.config.asked["seed"]) == (place / name, 2)
    assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    named = json.loads((place / "results" / "args.json").read_text())["run"]
    assert named == str((place / name).resolve())


def test_logs_within_the_run_come_with_it(dataset: Dataset, place: Path) -> None:
    inside = LogConfig(log_path=place / "run" / "log.jsonl", results_dir=place / "run")
    run_of("gmf", dataset, place / "run")
    run = run_of("gmf", dataset, place / "run", overwrite=True, seed=2, logs=inside)
    assert (run.path / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    assert json.loads((run.path / "args.json").read_text())["seed"] == 2


def test_a_training_that_goes_on_replaces_a_log_where_it_may(dataset: Dataset, place: Path) -> None:
    run_of("gmf", dataset, place / "other", logs=logs(place))
    before = (place / "log.jsonl").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run_of(
            "gmf", dataset, place / "run", overwrite=True,
            logs=logs(place), callback=Killing("epoch 2"),
        )  # fmt: skip
    assert (place / "log.jsonl").read_bytes() == before
    with pytest.raises(SettingError, match="without --overwrite"):
        resume(place / "run", logs=logs(place))
    run = resume(place / "run", logs=logs(place), overwrite=True)
    assert (place / "log.jsonl").read_bytes() == run.log.path.read_bytes()
    with pytest.raises(RunError, match="there is nothing to go on with"):
        resume(place / "run", overwrite=True)


def test_a_config_of_another_program_makes_no_run(dataset: Dataset, place: Path) -> None:
    model = place / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "weights.bin").write_bytes(b"months")
    before = contents(place)
    with pytest.raises(RunError, match="model is no run, and nothing else is replaced"):
        run_of("popularity", dataset, model, overwrite=True)
    assert contents(place) == before


def test_a_name_of_what_replaces_another_is_refused(dataset: Dataset, place: Path) -> None:
    with pytest.raises(
        RunError, match=r"\.mine\.next is the name of a run that is to replace .*mine"
    ):
        run_of("popularity", dataset, place / ".mine.next")


def test_what_came_to_the_place_meanwhile_stays(dataset: Dataset, place: Path) -> None:
    run_of("popularity", dataset, place / "run")

    class Moving(Callback):
        def finished(self, summary: TrainingSummary) -> None:
            (place / "run").rename(place / "elsewhere")
            (place / "run").mkdir()
            (place / "run" / "thesis.txt").write_text("years of work")

    with pytest.raises(RunError, match="run is no run, and nothing else is replaced"):
        run_of("popularity", dataset, place / "run", overwrite=True, callback=Moving())
    assert (place / "run" / "thesis.txt").read_text() == "years of work"
    assert Run.open(place / ".run.next").is_finished
