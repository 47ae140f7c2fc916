"""A training that stopped anywhere and was resumed equals the training that never stopped."""

from __future__ import annotations

import io
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import foretaste
from foretaste.data import Dataset
from foretaste.errors import DatasetError, RunError, TrainingError
from foretaste.models.batches import Batch
from foretaste.models.neumf.config import GMFConfig
from foretaste.runs import Run, verify
from foretaste.training import Callback, LogConfig, TrainingConfig, resume
from foretaste.training.callbacks import EpochReport, TrainingStart
from foretaste.training.checkpoint import Checkpoints, hardware_of
from foretaste.training.display import TrainingDisplay
from foretaste.training.state import Clock
from foretaste.training.step import Step
from tests.messages import raises, says
from tests.runs.tiny import edit_config, flip_byte
from tests.training.trainings import contents, events, numbers_of, run_of, weights_of

STATE = "resume.safetensors"
EVERY = [
    *((name, "fp32") for name in ("gmf", "neumf", "mlp", "vae", "dae", "recvae", "sasrec", "ials")),
    *((name, "bf16") for name in ("neumf", "vae", "sasrec")),
    *((name, "fp16") for name in ("neumf", "vae", "recvae")),
]
"""Every model with epochs, in every precision of its steps."""

BATCHES = {"vae": 20, "dae": 20, "recvae": 20, "sasrec": 100}
"""Users or steps in a batch; the others take samples."""


class Photographs(Callback):
    """Copies the run at reported moments: the files that a SIGKILL would leave then."""

    def __init__(self, run_path: Path, album: Path, moments: Container[str] | None = None) -> None:
        self.run_path = run_path
        self.album = album
        self.moments = moments
        self.num_evaluations: Counter[str] = Counter()

    def started(self, start: TrainingStart) -> None:
        self.take("start")

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.take(f"step-{epoch}-{step}")

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        self.take(f"{split}-{self.num_evaluations[split]}")
        self.num_evaluations[split] += 1

    def epoch_done(self, report: EpochReport) -> None:
        self.take(f"epoch-{report.epoch}")

    def take(self, name: str) -> None:
        if self.moments is None or name in self.moments:
            shutil.copytree(self.run_path, self.album / name)


class Stop(BaseException):
    """Ends a training like a kill: nobody handles it."""


class Stopping(Callback):
    """Ends a training after a number of steps."""

    def __init__(self, num_steps: int) -> None:
        self.num_left = num_steps

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            raise Stop


def train_small(name: str, dataset: Dataset, path: Path, **settings: Any) -> Run:
    batch_size = BATCHES.get(name, 1000)
    return run_of(name, dataset, path, **{"batch_size": batch_size} | settings)


def stopped(dataset: Dataset, path: Path, num_steps: int = 5, **settings: Any) -> Run:
    """A run of three epochs of four steps each, stopped after some of them."""
    settings = {"checkpoint_every_s": 0.0} | settings
    with pytest.raises(Stop):
        train_small("gmf", dataset, path, callback=Stopping(num_steps), **settings)
    return Run.open(path)


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same training without a stop."""
    return train_small("gmf", dataset, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def stopped_once(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return stopped(dataset, tmp_path_factory.mktemp("stopped") / "run")


@pytest.fixture
def run(stopped_once: Run, tmp_path: Path) -> Run:
    """A run that was stopped in its second epoch; each test gets a copy."""
    return Run.open(shutil.copytree(stopped_once.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def other(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with another seed."""
    return stopped(dataset, tmp_path_factory.mktemp("other") / "run", seed=2)


def assert_ends_alike(whole: Run, album: Path, moments: Iterable[str]) -> None:
    """Resume a copy from each moment, and check that it ends like the whole training."""
    for moment in moments:
        copy = resume(album / moment)
        assert weights_of(copy) == weights_of(whole), moment
        assert numbers_of(copy) == numbers_of(whole), moment


@pytest.mark.parametrize(("name", "precision"), EVERY)
def test_a_killed_training_resumes_exactly(
    name: str, precision: str, shop: Dataset, tmp_path: Path
) -> None:
    path, album = tmp_path / "run", tmp_path / "album"
    moments = ("step-1-1", "step-2-1", "validation-1", "test-0")
    whole = train_small(
        name,
        shop,
        path,
        epochs=2,
        precision=precision,
        checkpoint_every_s=0.0,
        callback=Photographs(path, album, moments),
    )
    assert_ends_alike(whole, album, moments)


@pytest.mark.parametrize("name", ["gmf", "recvae"])
def test_a_killed_training_resumes_with_its_average_and_schedule(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    path, album = tmp_path / "run", tmp_path / "album"
    settings = {"ema": 0.9, "learning_rate_schedule": "cosine", "checkpoint_every_s": 0.0}
    moments = ("start", "step-1-2", "epoch-2")
    photographs = Photographs(path, album, moments)
    whole = train_small(name, dataset, path, callback=photographs, **settings)
    assert_ends_alike(whole, album, moments)


def test_a_training_killed_while_it_chooses_a_prior_chooses_the_same(
    heldout_users: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GMFConfig, "resolved_prior_weight", 0.1)
    path, album = tmp_path / "run", tmp_path / "album"
    photographs = Photographs(path, album)
    whole = train_small(
        "gmf", heldout_users, path, callback=photographs, learning_rate=0.05, epochs=30
    )
    assert [event["fold_in"]["prior_weight"] > 0.1 for event in events(whole, "summary")] == [True]
    num_taken = photographs.num_evaluations["validation"]
    moments = [f"validation-{number}" for number in range(num_taken - 4, num_taken)]
    assert_ends_alike(whole, album, [*moments, "test-0"])


def test_a_finished_run_with_a_damaged_log_is_not_restarted(whole: Run, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole.path, path)
    log = path / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[-1] = lines[-1][9:]
    log.write_bytes(b"".join(lines))
    before = contents(path)
    with raises(RunError, log, len(lines), re.compile("Extra data: .*")):
        resume(path)
    assert contents(path) == before


def test_weights_are_kept_if_the_log_is_damaged(run: Run) -> None:
    (run.path / "resume.safetensors").unlink()
    lines = run.log.path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][9:]
    run.log.path.write_bytes(b"".join(lines))
    before = (run.path / "best.safetensors").read_bytes()
    with raises(RunError, run.log.path, 3, re.compile("Extra data: .*")):
        resume(run.path)
    assert (run.path / "best.safetensors").read_bytes() == before


def test_a_finished_training_keeps_no_state(dataset: Dataset, tmp_path: Path) -> None:
    run = train_small("gmf", dataset, tmp_path / "run", checkpoint_every_s=0.0)
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        *("config.json", "metrics.jsonl", "best.safetensors"),
        *("users.parquet", "items.parquet", "histories.parquet"),
    }


def test_finished_steps_are_not_repeated(dataset: Dataset, tmp_path: Path) -> None:
    run = stopped(dataset, tmp_path / "run", num_steps=7)
    steps: list[tuple[int, int]] = []

    class Watching(Callback):
        def started(self, start: TrainingStart) -> None:
            assert start.resumed_at == "epoch 2, step 2 of 4"

        def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
            steps.append((epoch, step))

    resume(run, callback=Watching())
    assert steps == [(2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (3, 4)]
    (event,) = events(run, "resume")
    assert (event["epoch"], event["step"]) == (2, 6)
    assert event["versions"]["foretaste"] == foretaste.__version__
    assert event["hardware"] == run.config.hardware == {"num_threads": torch.get_num_threads()}


def test_resuming_reports_other_versions_and_threads(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []

    class Watching(Callback):
        def started(self, start: TrainingStart) -> None:
            told.append(start.resumed_at)

    torch_threads = torch.get_num_threads()
    now = {**run.config.versions, "torch": "9.9"}
    for module in ("checkpoint", "trainer"):
        monkeypatch.setattr(f"foretaste.training.{module}.installed_versions", lambda: now)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    resume(run, callback=Watching())
    begun = f"torch {run.config.versions['torch']}, num_threads {torch_threads}"
    says(*told, 2, 0, 4, begun)
    (event,) = events(run, "resume")
    assert event["versions"]["torch"] == "9.9"
    assert event["hardware"] == {"num_threads": 7}


def test_a_gpu_decides_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {torch.device("cuda:1"): "NVIDIA H200"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    assert hardware_of(torch.device("cuda:1")) == {"gpu": "NVIDIA H200"}


def test_resuming_does_not_report_hardware_that_was_not_recorded(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []

    class Watching(Callback):
        def started(self, start: TrainingStart) -> None:
            told.append(start.resumed_at)

    with monkeypatch.context() as patch:
        patch.setattr("foretaste.training.trainer.hardware_of", lambda *of: {})
        run = stopped(dataset, tmp_path / "run")
    resume(run, callback=Watching())
    says(*told, 2, 0, 4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_here_is_named(run: Run) -> None:
    edit_config(run, resolved={**run.config.resolved, "device": "cuda:0"})
    with raises(RunError, run.path, "cuda:0", f"--from {run.path}"):
        resume(run.path)


def test_a_training_may_be_stopped_and_resumed_many_times(
    whole: Run, dataset: Dataset, tmp_path: Path
) -> None:
    run = stopped(dataset, tmp_path / "run", num_steps=2)
    for _ in range(4):
        with pytest.raises(Stop):
            resume(run, callback=Stopping(2))
    resume(run)
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def test_a_training_without_a_state_restarts_in_its_place(
    whole: Run, dataset: Dataset, tmp_path: Path
) -> None:
    run = stopped(dataset, tmp_path / "run", num_steps=9, checkpoint_every_s=60.0)
    assert run.has_weights
    assert not (run.path / STATE).exists()
    out = io.StringIO()
    with TrainingDisplay(Console(file=out), TrainingConfig()) as display:
        resume(run, callback=display)
    assert "Resuming gmf on " in out.getvalue()
    assert "  resumed at  epoch 1: it had ended before a state was saved\n" in out.getvalue()
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)
    assert not events(run, "resume")


def test_a_closed_form_is_fitted_again(dataset: Dataset, tmp_path: Path) -> None:
    class StoppingAtOnce(Callback):
        def started(self, start: TrainingStart) -> None:
            raise Stop

    whole = run_of("ease", dataset, tmp_path / "whole")
    with pytest.raises(Stop):
        run_of("ease", dataset, tmp_path / "run", callback=StoppingAtOnce())
    run = resume(tmp_path / "run")
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def test_leftovers_of_killed_writers_are_removed(whole: Run, run: Run, tmp_path: Path) -> None:
    for name in (STATE, "best.safetensors"):
        (run.path / f".0badcafe.tmp.{name}").mkdir()
        (run.path / f".0badcafe.tmp.{name}" / ".tmpE5PIrR").write_bytes(b"half")
    with run.log.path.open("ab") as log:
        log.write(b'\0\0\xff{"event": "summary", "epo')
    resume(run, logs=LogConfig(log_path=tmp_path / "copy.json"))
    assert not list(run.path.glob(".*"))
    assert numbers_of(run) == numbers_of(whole)


def test_a_finished_run_cannot_be_resumed(whole: Run) -> None:
    before = contents(whole.path)
    with raises(RunError, whole.path, f"--from {whole.path}"):
        resume(whole)
    assert contents(whole.path) == before


def test_weights_of_another_training_cannot_be_resumed(run: Run, other: Run) -> None:
    shutil.copy(other.path / "best.safetensors", run.path)
    before = contents(run.path)
    with raises(RunError, run.path / "best.safetensors", "config_sha256"):
        resume(run)
    assert contents(run.path) == before


def test_weights_that_are_gone_are_missed(run: Run) -> None:
    (run.path / "best.safetensors").unlink()
    with raises(RunError, run.path / "best.safetensors"):
        resume(run)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_weights_are_known_wherever_their_saving_is_killed(
    moment: str, whole: Run, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill comes before or after the second epoch's weights take their place."""
    replace = Path.replace

    def killed(source: Path, path: Path) -> None:
        is_second = path.name == "best.safetensors" and path.exists()
        if moment == "after" or not is_second:
            replace(source, path)
        if is_second:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(Stop):
            train_small("gmf", dataset, tmp_path / "run", checkpoint_every_s=0.0)
    run = Run.open(tmp_path / "run")
    assert run.open_weights().note["epoch"] == (1 if moment == "before" else 2)
    assert verify(run.path) == []
    with pytest.raises(Stop):
        resume(run, callback=Stopping(1))
    assert verify(run.path) == []
    resume(run)
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def truncate(path: Path, other: Run) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path, other: Run) -> None:
    path.write_bytes(b"")


def change_a_number(path: Path, other: Run) -> None:
    flip_byte(path, -9)


def change_the_note(path: Path, other: Run) -> None:
    content = path.read_bytes()
    changed = content.replace(rb"\"num_done\": ", rb"\"num_done\":4", 1)
    assert changed != content
    path.write_bytes(changed)


def take_weights_for_it(path: Path, other: Run) -> None:
    shutil.copy(path.with_name("best.safetensors"), path)


def take_another_run_s(path: Path, other: Run) -> None:
    shutil.copy(other.path / STATE, path)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (truncate, [re.compile(r"Error while deserializing header: .*?(?=\. Remove)")]),
        (empty, [re.compile(r"Error while deserializing header: .*?(?=\. Remove)")]),
        (change_a_number, []),
        (change_the_note, []),
        (take_weights_for_it, ["content", "weights", "training state"]),
        (take_another_run_s, ["config_sha256"]),
    ],
)
def test_a_state_that_is_not_whole_or_not_ours_is_named(
    spoil: Callable[[Path, Run], None], named: list[object], run: Run, other: Run
) -> None:
    spoil(run.path / STATE, other)
    with raises(RunError, run.path / STATE, *named, run.path / STATE):
        resume(run)


def test_a_changed_config_cannot_be_resumed(run: Run) -> None:
    edit_config(run, resolved={**run.config.resolved, "learning_rate": 0.02})
    with raises(RunError, run.path / STATE, "config_sha256", run.path / STATE):
        resume(run.path)


@pytest.mark.parametrize("lost", [1, 1000])
def test_a_log_that_lost_lines_is_named(run: Run, lost: int) -> None:
    run.log.path.write_bytes(run.log.path.read_bytes()[:-lost])
    with raises(RunError, run.log.path, run.path / STATE):
        resume(run)


def test_an_empty_log_is_named(dataset: Dataset, tmp_path: Path) -> None:
    run = stopped(dataset, tmp_path / "run", checkpoint_every_s=60.0)
    run.log.path.write_bytes(b"")
    with raises(RunError, run.log.path, 1):
        resume(run)


def test_the_dataset_may_have_moved(whole: Run, dataset: Dataset, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(dataset.path, copy)
    run = stopped(Dataset(copy, dataset.manifest), tmp_path / "run")
    copy.rename(tmp_path / "moved")
    with raises(DatasetError, run.path, copy, "--dataset"):
        resume(run)
    resume(run, dataset=tmp_path / "moved")
    assert weights_of(run) == weights_of(whole)


def test_another_dataset_is_refused(dataset: Dataset, test_only: Dataset, run: Run) -> None:
    digests = [one.manifest.digest[:12] for one in (test_only, dataset)]
    with raises(DatasetError, test_only.path, run.path, digests[0], dataset.path, digests[1]):
        resume(run, dataset=test_only.path)


@dataclass
class Diverging:
    """Stands for `Step.__call__`: after ``num_good`` updates the loss is infinite."""

    call: Callable[[Step, Batch], Tensor]
    num_good: int

    def __call__(self, step: Step, batch: Batch) -> Tensor:
        self.num_good -= 1
        return self.call(step, batch) * (1.0 if self.num_good >= 0 else float("inf"))


@pytest.mark.parametrize(
    ("num_good", "where", "has_weights"), [(2, (1, 3, 4), False), (6, (2, 3, 4), True)]
)
def test_a_loss_that_is_not_finite_leaves_the_last_good_state(
    num_good: int,
    where: tuple[int, int, int],
    has_weights: bool,
    whole: Run,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        diverging = Diverging(Step.__call__, num_good)
        patch.setattr(Step, "__call__", lambda step, batch: diverging(step, batch))
        start = [f"--from {tmp_path / 'run'}"] if has_weights else []
        with raises(TrainingError, "inf", *where, "--learning-rate", 0.01, *start):
            train_small("gmf", dataset, tmp_path / "run", checkpoint_every_s=0.0)
    run = Run.open(tmp_path / "run")
    assert run.has_weights == has_weights
    steps = Counted()
    resume(run, callback=steps)
    assert steps.num_done == 12 - num_good
    assert weights_of(run) == weights_of(whole)


class Counted(Callback):
    num_done = 0

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.num_done += 1


def test_states_are_saved_as_often_as_asked(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step takes 7 s by this clock, every save 20 s; the last save is at the end."""
    now, saved_at = 0.0, []

    class Ticking(Callback):
        def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
            nonlocal now
            now += 7.0

    save = Checkpoints.save

    def slow_save(checkpoints: Checkpoints) -> None:
        nonlocal now
        saved_at.append(now)
        now += 20.0
        save(checkpoints)

    monkeypatch.setattr(Checkpoints, "save", slow_save)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    train_small("gmf", dataset, tmp_path / "run", checkpoint_every_s=15.0, callback=Ticking())
    assert saved_at == [21.0, 62.0, 103.0, 144.0, 164.0]


def test_saving_is_outside_the_training_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    clock = Clock()
    clock.start()
    now = 2.0
    with clock.paused():
        assert clock.running_s == 2.0
        now = 50.0
    now = 51.0
    clock.stop()
    with clock.paused():
        now = 99.0
    clock.next_epoch()
    assert clock.epoch_s == [3.0]
    assert clock.running_s == 0.0
