"""``foretaste train --resume`` and the starts from other runs, typed like a user's commands."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from foretaste.runs import Run
from foretaste.training.display import TrainingDisplay
from tests.cli.conftest import Foretaste, refused
from tests.messages import says

SMALL = "--factors 4 --epochs 3 --batch-size 2000"


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that sends Ctrl-C once, in the second epoch's first step."""

    def arrange() -> None:
        stepped = TrainingDisplay.stepped

        def interrupting(
            display: TrainingDisplay, epoch: int, step: int, num_steps_per_epoch: int
        ) -> None:
            stepped(display, epoch, step, num_steps_per_epoch)
            if (epoch, step) == (2, 1):
                monkeypatch.setattr(TrainingDisplay, "stepped", stepped)
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(TrainingDisplay, "stepped", interrupting)

    return arrange


def test_an_interrupted_training_says_how_to_resume(
    interrupt: Callable[[], None], foretaste: Foretaste, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    interrupt()
    done = foretaste(f"train gmf data {SMALL} --eval-every 1 --run {run}")
    assert done.status == 130
    resume = f"foretaste train --resume {run}"
    says(done.err, "epoch 2", "step 1", resume)
    assert f"\nRun: {run}" not in done.out

    for command in (f"recommend {run} --user 1", f"similar {run} --item 1", f"evaluate {run}"):
        asked = foretaste(command)
        assert asked.status == 0, asked.err
        says(asked.err.splitlines()[0], run, resume)

    with Run.open(run).in_training():
        for command in (f"recommend {run} --user 1", f"evaluate {run}"):
            says(foretaste(command).err, run, os.getpid(), socket.gethostname(), "epoch 1")

    done = foretaste(resume.removeprefix("foretaste "))
    assert done.status == 0, done.err
    assert "Resuming gmf on " in done.out
    assert re.search(r"^  resumed at  epoch 2, step 1 of \d+$", done.out, re.MULTILINE)
    assert re.findall(r"^    ([123]) ", done.out, re.MULTILINE) == ["2", "3"]
    assert f"\nRun: {run}\nNext:\n" in done.out

    refused(foretaste(f"train --resume {run}"), run, f"--from {run}")


def test_a_finished_fit_is_repeated_by_like(foretaste: Foretaste, tmp_path: Path) -> None:
    """A model without epochs does not accept --from; --like repeats the fit."""
    run = tmp_path / "run"
    assert foretaste(f"train ease data --run {run}").status == 0
    refused(foretaste(f"train --resume {run}"), run, f"--like {run} DATASET")


def test_an_existing_log_is_replaced_only_with_overwrite(
    interrupt: Callable[[], None], foretaste: Foretaste, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    interrupt()
    foretaste(f"train gmf data {SMALL} --run {tmp_path}/other --log-path {log} --overwrite")
    line = f"train --resume {tmp_path}/other --log-path {log}"
    refused(foretaste(line), "log_path", log, "--overwrite")
    done = foretaste(f"{line} --overwrite")
    assert done.status == 0, done.err
    assert log.read_bytes() == Run.open(tmp_path / "other").log.path.read_bytes()


def test_a_dataset_that_was_moved_is_named(
    interrupt: Callable[[], None], foretaste: Foretaste, tmp_path: Path
) -> None:
    foretaste(f"prepare ratings.csv -o {tmp_path}/before")
    interrupt()
    foretaste(f"train gmf {tmp_path}/before {SMALL} --run {tmp_path}/run")
    (tmp_path / "before").rename(tmp_path / "after")
    run = tmp_path / "run"
    refused(foretaste(f"train --resume {run}"), run, tmp_path / "before", "--dataset")
    done = foretaste(f"train --resume {tmp_path}/run --dataset {tmp_path}/after")
    assert done.status == 0, done.err


def test_a_start_brings_the_settings_of_its_model(foretaste: Foretaste, tmp_path: Path) -> None:
    """A start brings the settings that are not given; a given one counts even if it equals the
    default."""
    line = "train vae data --epochs 1 --from runs/vae"
    done = foretaste(f"{line} --dropout 0.25 --run {tmp_path}/run")
    assert done.status == 0, done.err
    expected = {**Run.open("runs/vae").config.model_config, "dropout": 0.25}
    assert Run.open(tmp_path / "run").config.model_config == expected
    done = foretaste(f"{line} --hidden 600 --latent 8 --run {tmp_path}/other")
    refused(done, "runs/vae", "vae", "hidden", 32, 600)
    assert not (tmp_path / "other").exists()


def test_train_reads_several_files(foretaste: Foretaste, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("user_id,item_id,timestamp\n1,999,1\n999,2,2\n")
    done = foretaste(f"train gmf ratings.csv {tmp_path}/more.csv --epochs 1 --run {tmp_path}/own")
    assert done.status == 0, done.err
    assert Run.open(tmp_path / "own").config.dataset.num_users == 121


def test_neumf_starts_from_its_halves(foretaste: Foretaste, tmp_path: Path) -> None:
    for half in (
        f"gmf data --loss bce --factors 8 --epochs 1 --run {tmp_path}/gmf",
        f"mlp data --layers 8 4 --epochs 1 --run {tmp_path}/mlp",
    ):
        done = foretaste(f"train {half}")
        assert done.status == 0, done.err
    sizes = "--factors 8 --layers 8 4 --epochs 1"
    halves = (
        f"--pretrained-gmf {tmp_path}/gmf --pretrained-mlp {tmp_path}/mlp --pretrained-alpha 0.3"
    )
    done = foretaste(f"train neumf data {sizes} {halves} --run {tmp_path}/run")
    assert done.status == 0, done.err
    assert f"  from        {tmp_path}/gmf: 120 users found" in done.out
    assert f"  from        {tmp_path}/mlp: 120 users found" in done.out
    assert Run.open(tmp_path / "run").config.start["alpha"] == 0.3
