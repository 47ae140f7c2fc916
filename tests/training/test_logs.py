"""Logs that a training writes beside its run's own log."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from foretaste.data import Dataset
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.runs import Run
from foretaste.training import Callback, LogConfig, resume, train
from foretaste.training.logs import check_logs
from foretaste.training.request import TrainRequest
from foretaste.training.state import Clock
from tests.messages import Named, raises
from tests.training.test_interruption import Killing
from tests.training.trainings import events, run_of


class Comparing(Callback):
    """Compares two logs after every epoch."""

    def __init__(self, log: Path, copy: Path) -> None:
        self.log, self.copy, self.seen = log, copy, []  # type: tuple[Path, Path, list[bool]]

    def epoch_done(self, report: Any) -> None:
        self.seen.append(self.log.read_bytes() == self.copy.read_bytes())


def scalars(run: Run) -> dict[str, list[tuple[int, float]]]:
    """TensorBoard's curves as steps and values."""
    found = EventAccumulator(str(run.path / "tensorboard")).Reload()
    return {
        tag: [(point.step, point.value) for point in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_a_copy_is_always_as_new_as_the_log(dataset: Dataset, tmp_path: Path) -> None:
    copy = tmp_path / "logs" / "of" / "here.json"
    watching = Comparing(tmp_path / "run" / "metrics.jsonl", copy)
    run = run_of("gmf", dataset, tmp_path / "run", logs=LogConfig(log_path=copy), callback=watching)
    assert watching.seen == [True] * 3
    assert copy.read_bytes() == run.log.path.read_bytes()


def test_a_copy_in_the_place_of_the_log_is_the_log(dataset: Dataset, tmp_path: Path) -> None:
    logs = LogConfig(log_path=tmp_path / "run" / "metrics.jsonl")
    run = run_of("gmf", dataset, tmp_path / "run", logs=logs)
    assert len(events(run, "epoch")) == 3


def test_everything_written_follows_a_resumed_training(dataset: Dataset, tmp_path: Path) -> None:
    """Resuming removes events after the saved state from the log, and from all its copies."""
    path = tmp_path / "run"
    logs = LogConfig(
        log_path=tmp_path / "copy.json", results_dir=tmp_path / "results", tensorboard=True
    )
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, path, logs=logs, batch_size=200, callback=Killing("step 3-1"))
    Run.open(path).log.append("epoch", epoch=3, loss=1.0, train_s=1.0, samples_per_s=1.0)
    run = resume(path, logs=logs, overwrite=True)
    assert (tmp_path / "copy.json").read_bytes() == run.log.path.read_bytes()
    metrics = json.loads((tmp_path / "results" / "metrics.json").read_text())
    assert [epoch["epoch"] for epoch in metrics["epoch"]] == [1, 2, 3]
    assert [step for step, _ in scalars(run)["loss"]] == [1, 2, 3]


def test_existing_logs_are_replaced_only_with_overwrite(dataset: Dataset, tmp_path: Path) -> None:
    """The training that wrote a file replaces it too when it resumes."""
    logs = LogConfig(log_path=tmp_path / "copy.json", results_dir=tmp_path / "results")
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, tmp_path / "run", logs=logs, callback=Killing("epoch 1"))
    before = (tmp_path / "copy.json").read_bytes()
    for kept in ({"log_path": logs.log_path}, {"results_dir": logs.results_dir}):
        (named,) = kept.items()
        with raises(SettingError, *named, "--overwrite"):
            run_of("gmf", dataset, tmp_path / "new", logs=LogConfig(**kept))
        with raises(SettingError, *named, "--overwrite"):
            resume(tmp_path / "run", logs=LogConfig(**kept))
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "copy.json").read_bytes() == before
    run = resume(tmp_path / "run", logs=logs, overwrite=True)
    assert (tmp_path / "copy.json").read_bytes() == run.log.path.read_bytes()


def test_logs_are_looked_at_once_nobody_else_writes_them(dataset: Dataset, tmp_path: Path) -> None:
    """Events that another process is about to write would be missing."""
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, tmp_path / "run", callback=Killing("epoch 1"))
    (tmp_path / "copy.json").write_text("mine\n")
    run = Run.open(tmp_path / "run")
    with run.in_training(), raises(RunError, run.path, os.getpid(), gethostname()):
        resume(run.path, logs=LogConfig(log_path=tmp_path / "copy.json"))


@pytest.mark.parametrize("content", ["", "mine", "mine\n", '{"event": "schema"}\n{}\n'])
def test_only_an_empty_file_may_become_a_log(
    content: str, dataset: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(content)
    logs = LogConfig(log_path=path)
    if content:
        with raises(SettingError, "log_path", path, "--overwrite"):
            run_of("gmf", dataset, tmp_path / "run", logs=logs)
        assert path.read_text() == content
    else:
        run = run_of("gmf", dataset, tmp_path / "run", logs=logs)
        assert path.read_bytes() == run.log.path.read_bytes()


def test_results_cover_the_whole_training(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("vae", dataset, tmp_path / "run", logs=LogConfig(results_dir=tmp_path / "a" / "b"))
    settings = json.loads((tmp_path / "a" / "b" / "args.json").read_text())
    assert settings["model"] == "vae"
    assert settings["hidden"] == [12]
    assert isinstance(settings["batch_size"], int), "auto is resolved"
    metrics = json.loads((tmp_path / "a" / "b" / "metrics.json").read_text())
    for kind in ("epoch", "evaluation", "summary"):
        logged = [{**event} for event in events(run, kind)]
        assert [{"event": kind, **event} for event in metrics[kind]] == logged
    assert metrics["units"]["loss"]


def test_tensorboard_shows_what_the_log_has(dataset: Dataset, tmp_path: Path) -> None:
    logs = LogConfig(tensorboard=True)
    run = run_of("vae", dataset, tmp_path / "run", logs=logs, precision="fp16", loss_scale=64.0)
    curves = scalars(run)
    logged = events(run, "epoch")
    for name in ("loss", "samples_per_s", "train_s", "kl_weight", "loss_scale"):
        values = [value for _, value in curves[name]]
        assert values == pytest.approx([event[name] for event in logged])
        assert [step for step, _ in curves[name]] == [1, 2, 3]
    evaluations = [event["evaluation"] for event in events(run, "evaluation")]
    *validations, test = (found["metrics"]["ndcg@10"]["value"] for found in evaluations)
    assert [value for _, value in curves["validation/ndcg_at_10"]] == pytest.approx(validations)
    (best,) = events(run, "summary")
    assert curves["test/ndcg_at_10"] == [(best["best_epoch"], pytest.approx(test))]


def test_nothing_is_written_through_a_link_to_another_directory(
    dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, tmp_path / "run", callback=Killing("epoch 1"))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "theirs")
    with raises(RunError, tmp_path / "run" / "tensorboard"):
        resume(tmp_path / "run", logs=LogConfig(tensorboard=True))
    assert not list((tmp_path / "theirs").iterdir())


def test_models_fitted_in_one_pass_are_logged_too(dataset: Dataset, tmp_path: Path) -> None:
    logs = LogConfig(
        log_path=tmp_path / "copy.json", results_dir=tmp_path / "results", tensorboard=True
    )
    run = train("popularity", dataset, run=tmp_path / "run", logs=logs)
    assert (tmp_path / "copy.json").read_bytes() == run.log.path.read_bytes()
    assert json.loads((tmp_path / "results" / "args.json").read_text())["model"] == "popularity"
    assert [step for step, _ in scalars(run)["test/hr_at_10"]] == [0]


def test_a_missing_tensorboard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretaste.training.logs.find_spec", lambda name: None)
    with raises(MissingExtraError, "pip install tensorboard"):
        check_logs(TrainRequest.of("gmf", "data", logs=LogConfig(tensorboard=True)))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda root: LogConfig(log_path=root / "folder"), ("log_path", "folder")),
        (lambda root: LogConfig(log_path=root / "pipe"), ("log_path", "pipe")),
        (lambda root: LogConfig(log_path=root / "file" / "log"), ("log_path", "file/log", "file")),
        (lambda root: LogConfig(results_dir=root / "file"), ("results_dir", "file", "file")),
        (
            lambda root: LogConfig(results_dir=root / "file" / "x"),
            ("results_dir", "file/x", "file"),
        ),
    ],
)
def test_places_that_cannot_be_written_are_refused_before_a_run_exists(
    make: Callable[[Path], LogConfig], named: Named, dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with raises(SettingError, *named):
        run_of("gmf", dataset, tmp_path / "run", logs=make(tmp_path))
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_named(dataset: Dataset, tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("no /dev/full here")
    with raises(RunError, full, errno.ENOSPC):
        run_of("gmf", dataset, tmp_path / "run", logs=LogConfig(log_path=full))
    assert events(resume(tmp_path / "run"), "summary")


@pytest.mark.parametrize(("num_warm_up", "averaged"), [(0, [3, 2, 1]), (2, [1]), (5, [1])])
def test_warm_up_epochs_are_left_out_but_the_last(num_warm_up: int, averaged: list[float]) -> None:
    clock = Clock(epoch_s=[3, 2, 1])
    times = clock.times(12, num_warm_up)
    assert times["num_warm_up_epochs"] == 3 - len(averaged)
    assert times["min_epoch_s"] == min(averaged)
    assert times["avg_epoch_s"] == sum(averaged) / len(averaged)
    assert times["samples_per_s"] == 12 / times["avg_epoch_s"]


def test_epochs_that_compiled_are_left_out_of_averages() -> None:
    """The first epoch compiles, and so does the first one after resuming."""
    clock = Clock(
        compile_s=7,
        epoch_s=[9, 2, 8, 1],
        evaluate_s={"1": 6, "3": 5, "4": 3, "test": 4},
        cold_epochs=[1, 3],
    )
    assert clock.averaged_epochs(0) == [2, 4]
    times = clock.times(6, 0)
    assert (times["min_epoch_s"], times["avg_epoch_s"], times["train_s"]) == (1, 1.5, 20)
    assert times["min_evaluation_s"] == times["avg_evaluation_s"] == 3
    assert clock.averaged_epochs(2) == [4]
    without = Clock(epoch_s=[9, 2], evaluate_s={"1": 6, "test": 4}, cold_epochs=[1]).times(6, 0)
    assert without["min_evaluation_s"] == 6
    assert clock.elapsed_until(3) == 7 + 9 + 2 + 8 + 6 + 5
    assert Clock(epoch_s=[9], cold_epochs=[1]).averaged_epochs(0) == [1]


def test_the_list_length_that_chose_the_epoch_is_tested_too(
    dataset: Dataset, tmp_path: Path
) -> None:
    run = run_of("gmf", dataset, tmp_path / "run", select_by="hr@7")
    test = events(run, "evaluation")[-1]["evaluation"]
    assert test["split"] == "test"
    assert {"hr@7", "hr@10"} <= test["metrics"].keys()
