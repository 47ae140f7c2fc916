"""A full disk gives one message, loses nothing, and the training resumes later."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foretaste.data import Dataset
from foretaste.errors import RunError
from foretaste.models.vae.config import DAEConfig
from foretaste.runs import Run
from foretaste.training import Callback, TrainingConfig, resume, train
from foretaste.training.callbacks import EpochReport
from tests.messages import raises
from tests.training.trainings import numbers_of, weights_of

BETWEEN = 100_000
"""Bytes of a limit between the smaller files and the weights and training states."""


def fill_disk(free: int) -> None:
    """Keep every file at most ``free`` bytes long from now."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))


@contextmanager
def room_again_afterwards() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def train_large(
    dataset: Dataset, path: Path, callback: Callback | None = None, **more: float
) -> Run:
    """Its weights take a quarter of a megabyte, its state three times that.

    It learns slowly, so that the last epoch is the best.
    """
    config = TrainingConfig(
        epochs=4, batch_size=20, learning_rate=0.0003, eval_every=2, device="cpu", **more
    )
    settings = DAEConfig(hidden=(400,), latent=50)
    return train("dae", dataset, model_config=settings, config=config, run=path, callback=callback)


class FullAfterThreeEpochs(Callback):
    def epoch_done(self, report: EpochReport) -> None:
        if report.epoch == 3:
            fill_disk(BETWEEN)


@pytest.mark.parametrize(
    ("more", "name"),
    [({"checkpoint_every_s": 0.0}, "resume.safetensors"), ({}, "best.safetensors")],
)
def test_a_disk_that_fills_up_loses_nothing(
    more: dict[str, float], name: str, dataset: Dataset, tmp_path: Path
) -> None:
    whole, path = train_large(dataset, tmp_path / "whole"), tmp_path / "run"
    theirs = re.compile(r"Error while serializing: [^;]*File too large[^;]*")
    named = (path / name, theirs, f"foretaste train --resume {path}")
    with room_again_afterwards(), raises(RunError, *named):
        train_large(dataset, path, FullAfterThreeEpochs(), **more)
    assert not list(path.glob(".*"))
    assert Run.open(path).load_weights()
    run = resume(path)
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)


def test_a_log_without_room_is_one_message(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.runs.files.save_tensors", lambda *_, **__: None)
    path = tmp_path / "run"

    class NoRoomForALine(Callback):
        def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
            fill_disk((path / "metrics.jsonl").stat().st_size)

    with (
        room_again_afterwards(),
        raises(RunError, path / "metrics.jsonl", errno.EFBIG, f"foretaste train --resume {path}"),
    ):
        train_large(dataset, path, NoRoomForALine())


def test_a_run_without_room_leaves_nothing(dataset: Dataset, tmp_path: Path) -> None:
    with room_again_afterwards():
        fill_disk(500)
        with raises(RunError, tmp_path / "run", re.compile(r"\[Errno 27\].*")):
            train_large(dataset, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
