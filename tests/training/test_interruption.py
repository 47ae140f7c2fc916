"""Ctrl-C, SIGTERM and SIGHUP: the training ends with a whole state, and says how to resume."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretaste.data import Dataset, GenerateConfig, generate, prepare
from foretaste.errors import Interrupted, RunError
from foretaste.runs import Run
from foretaste.training import Callback, resume
from foretaste.training.callbacks import EpochReport, TrainingStart
from foretaste.training.interruption import Interruption
from tests.messages import raises, says
from tests.training.trainings import numbers_of, run_of, weights_of

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Killing(Callback):
    """Sends this process a signal at one moment."""

    def __init__(self, moment: str, number: int = signal.SIGINT) -> None:
        self.moment = moment
        self.number = number

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self._at(f"step {epoch}-{step}")

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        self._at(split)

    def epoch_done(self, report: EpochReport) -> None:
        self._at(f"epoch {report.epoch}")

    def _at(self, moment: str) -> None:
        if moment == self.moment:
            os.kill(os.getpid(), self.number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[int, object]]:
    """The handlers of the signals; every test must leave them unchanged."""
    before: dict[int, object] = {number: signal.getsignal(number) for number in SIGNALS}
    yield before
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of("gmf", dataset, tmp_path_factory.mktemp("whole") / "run", batch_size=1000)


@pytest.mark.parametrize(
    ("moment", "where", "number"),
    [
        *(("step 2-3", "in epoch 2, after step 3 of 4", number) for number in SIGNALS),
        ("step 1-4", "in epoch 1, after step 4 of 4", signal.SIGINT),
        ("epoch 2", "after epoch 2", signal.SIGINT),
        ("validation", "while ranking the validation part", signal.SIGINT),
        ("test", "while ranking the test part", signal.SIGINT),
    ],
)
def test_an_interrupted_training_resumes_at_its_place(
    moment: str, where: str, number: int, whole: Run, dataset: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "a run"
    with pytest.raises(Interrupted) as error:
        run_of("gmf", dataset, path, batch_size=1000, callback=Killing(moment, number))
    expected = f"interrupted {where}; resume with: foretaste train --resume '{path}'"
    assert str(error.value) == expected
    assert error.value.signal_number == number
    assert (path / "resume.safetensors").is_file()
    run = resume(path)
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def test_a_training_whose_output_nobody_reads_is_saved(
    whole: Run, dataset: Dataset, tmp_path: Path
) -> None:
    class Printing(Callback):
        def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
            if (epoch, step) == (2, 3):
                raise BrokenPipeError
            assert (epoch, step) < (2, 3), "nothing more is printed"

    path = tmp_path / "run"
    with raises(Interrupted, 2, 3, 4, f"foretaste train --resume {path}") as error:
        run_of("gmf", dataset, path, batch_size=1000, callback=Printing())
    assert error.value.signal_number == signal.SIGPIPE
    run = resume(path)
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def test_fitting_is_interrupted_if_nothing_is_ranked(tmp_path: Path) -> None:
    class KillingAtTheStart(Callback):
        def started(self, start: TrainingStart) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    table = generate(GenerateConfig(num_users=30, num_items=20, num_interactions=200)).table
    dataset = prepare(table, tmp_path / "data", protocol="none")
    with raises(Interrupted, f"foretaste train --resume {tmp_path / 'run'}"):
        run_of("ease", dataset, tmp_path / "run", callback=KillingAtTheStart())
    assert resume(tmp_path / "run").is_finished


def test_fitting_is_interrupted_between_its_steps(dataset: Dataset, tmp_path: Path) -> None:
    steps = []

    class Watching(Killing):
        def fitting(self, step: str, num_done: int, num_all: int) -> None:
            steps.append(step)
            self._at(step)

    watching = Watching("counting pairs of items")
    with raises(Interrupted, f"foretaste train --resume {tmp_path / 'run'}"):
        run_of("ease", dataset, tmp_path / "run", callback=watching, search=False)
    assert steps == ["counting pairs of items"]
    assert resume(tmp_path / "run").is_finished


def test_the_second_signal_acts_at_once(tmp_path: Path) -> None:
    with Interruption(tmp_path):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt) as error:
            os.kill(os.getpid(), signal.SIGINT)
    assert not isinstance(error.value, Interrupted)


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    """A shell's background jobs ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption(tmp_path) as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            interruption.check("nowhere")
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_train_without_catching_signals(dataset: Dataset, tmp_path: Path) -> None:
    found: list[Run] = []
    work = threading.Thread(
        target=lambda: found.append(run_of("gmf", dataset, tmp_path / "run", epochs=1))
    )
    work.start()
    work.join()
    assert found[0].is_finished


def test_the_same_call_resumes_an_unfinished_run(
    whole: Run, dataset: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Interrupted):
        run_of("gmf", dataset, tmp_path / "run", batch_size=1000, callback=Killing("epoch 2"))
    steps = (f"foretaste train --resume {tmp_path / 'run'}", "--overwrite")
    with raises(RunError, tmp_path / "run", "batch_size", 1000, 500, *steps):
        run_of("gmf", dataset, tmp_path / "run", batch_size=500)
    with raises(RunError, tmp_path / "run", "model", "gmf", "mlp", *steps):
        run_of("mlp", dataset, tmp_path / "run", batch_size=1000)
    with caplog.at_level("INFO", "foretaste"):
        run = run_of("gmf", dataset, tmp_path / "run", batch_size=1000, checkpoint_every_s=1.0)
    said, training = caplog.messages[:2]
    says(said, tmp_path / "run")
    assert training.startswith("Resuming gmf on ")
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)
    assert [event["event"] for event in run.log.read()].count("resume") == 1
    with raises(RunError, tmp_path / "run", "--overwrite"):
        run_of("gmf", dataset, tmp_path / "run", batch_size=1000)


def test_an_unfinished_run_on_other_data_is_left_alone(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with raises(Interrupted, f"foretaste train --resume {path}"):
        run_of("ease", dataset, path, callback=Killing("test"))
    table = generate(GenerateConfig(num_users=30, num_items=20, num_interactions=200)).table
    other = prepare(table, tmp_path / "data", protocol="none")
    digests = (one.manifest.digest[:12] for one in (dataset, other))
    with raises(RunError, path, *digests, f"foretaste train --resume {path}", "--overwrite"):
        run_of("ease", other, path)
    assert resume(path).is_finished
