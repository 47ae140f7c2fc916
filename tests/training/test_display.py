"""A training as it is watched on a terminal, from the command line and from Python."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from foretaste.data import Dataset
from foretaste.models.baselines.ease import Ease
from foretaste.training import Progress, TrainingConfig, resume
from foretaste.training.display import TrainingDisplay
from foretaste.training.progress import EpochReport, TrainingStart
from foretaste.training.resolve import TrainingSize, resolve
from tests.training.test_interruption import Killing
from tests.training.trainings import run_of

ASKED = TrainingConfig(epochs=3, device="cpu")


def started() -> TrainingStart:
    size = TrainingSize(num_interactions=1000, num_users=100, protocol="leave-one-out")
    return TrainingStart(
        model="gmf",
        dataset="data",
        protocol="leave-one-out",
        plan=resolve(ASKED, size, samples_per_interaction=5, device="cpu"),
        num_users=100,
        num_items=50,
        num_interactions=1000,
        num_parameters=2400,
        num_samples=5000,
        num_batches=10,
        selection_split="validation",
        started_from={},
        resumed_at=None,
    )


def watched(*, terminal: bool, loss: float = 0.25) -> str:
    """What two steps and the end of an epoch print."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    with TrainingDisplay(console, ASKED) as display:
        display.started(started())
        display.stepped(2, 1, 10)
        display.stepped(2, 10, 10)
        display.evaluating("validation", 40, 100)
        display.bars.refresh()
        display.epoch_done(
            EpochReport(
                epoch=2,
                step=20,
                loss=loss,
                train_s=0.5,
                samples_per_s=10_000.0,
                settings={},
                evaluation=None,
                is_best=False,
            )
        )
    return out.getvalue()


def test_a_terminal_shows_a_bar() -> None:
    text = watched(terminal=True)
    assert "ranking validation" in text
    assert " 40 %" in text
    assert "\x1b[2K" in text


def test_a_pipe_gets_plain_lines() -> None:
    text = watched(terminal=False)
    assert "\x1b" not in text
    assert "ranking" not in text
    assert text.splitlines()[-1].split() == ["2", "0.25000", "0.50", "s", "10", "k"]


def test_the_bar_is_gone_when_a_training_fails() -> None:
    out = io.StringIO()
    with (
        pytest.raises(RuntimeError, match="diverged"),
        TrainingDisplay(Console(file=out, force_terminal=True), ASKED) as display,
    ):
        raise RuntimeError("diverged")
    assert not display.bars.live.is_started
    assert out.getvalue().rstrip().endswith("\x1b[2K")


def test_a_huge_loss_keeps_to_its_column() -> None:
    assert "    2  1.0224e+15" in watched(terminal=False, loss=1.0224e15)


class Stream(io.StringIO):
    """What stderr is: a terminal, or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def shown_on(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The stream, in the place of stderr."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_training_from_python_is_shown_on_a_terminal(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed one too."""
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, tmp_path / "run", progress=Killing("epoch 2"))
    first = shown_on(Stream(terminal=True), monkeypatch)
    run_of("gmf", dataset, tmp_path / "other")
    second = shown_on(Stream(terminal=True), monkeypatch)
    resume(tmp_path / "run")
    for stream, verb in ((first, "Training"), (second, "Resuming")):
        said = stream.getvalue()
        assert f"{verb} gmf on {dataset.path}" in said
        assert "epoch 3 of 3" in said
        assert "ended       all 3 epochs are done" in said
    assert "    1   " in first.getvalue()
    assert "    1   " not in second.getvalue()


def test_a_fit_says_what_it_does_before_it_begins(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=True), monkeypatch)
    monkeypatch.setattr(Ease, "fit", lambda *_: pytest.fail(stream.getvalue()))
    size = dataset.manifest.num_items
    with pytest.raises(pytest.fail.Exception, match=f"fitting     inverting a {size} × {size} "):
        run_of("ease", dataset, tmp_path / "run")


def test_nothing_is_shown_where_nobody_looks_or_wants_to(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=False), monkeypatch)
    run_of("gmf", dataset, tmp_path / "piped")
    assert stream.getvalue() == ""
    stream = shown_on(Stream(terminal=True), monkeypatch)
    run_of("gmf", dataset, tmp_path / "quiet", progress=Progress())
    assert stream.getvalue() == ""
