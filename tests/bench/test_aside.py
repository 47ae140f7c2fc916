"""The plain loop in a process of its own."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import cast

import pytest
import torch

from foretaste.bench import aside
from foretaste.bench.aside import PlainCase, PlainProcess, _serve
from foretaste.bench.generated import load_histories
from foretaste.bench.shapes import parse_shape
from foretaste.bench.subject import Subject
from foretaste.errors import TrainingError
from foretaste.models.vae.config import VAEConfig


@pytest.fixture
def case() -> PlainCase:
    subject = Subject(model=VAEConfig(hidden=(8,), latent=4))
    plan = subject.plan("fp32", 20, 1, 1, torch.device("cpu"))
    histories = load_histories(parse_shape("60x30x400", "vae"), None)
    return PlainCase(subject, histories, plan, "fp32", 10, 1)


@pytest.fixture
def plain(case: PlainCase) -> Iterator[PlainProcess]:
    process = PlainProcess(case)
    yield process
    process.close()


def test_epochs_are_trained_when_asked_for(plain: PlainProcess) -> None:
    assert plain.built.chunk == 10
    assert plain.built.build_s > 0
    epochs = [plain.epoch() for _ in range(2)]
    assert all(epoch.seconds > 0 and epoch.memory_is for epoch in epochs)


def test_its_errors_are_ours(case: PlainCase) -> None:
    plan = dataclasses.replace(case.plan, device="elsewhere")
    with pytest.raises(RuntimeError, match="elsewhere"):
        PlainProcess(dataclasses.replace(case, plan=plan))


def test_a_killed_process_is_told_of(plain: PlainProcess) -> None:
    plain._process.kill()
    with pytest.raises(TrainingError, match=r"signal 9.*smaller --shape"):
        plain.epoch()


def test_a_process_that_cannot_begin_says_so(
    case: PlainCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a script lacks its ``__main__`` guard."""
    monkeypatch.setattr(aside, "_serve", _leave)
    with pytest.raises(TrainingError, match=r"exit code 3.*__main__"):
        PlainProcess(case)


def test_errors_that_cannot_be_sent_are_told(
    case: PlainCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    class Pipe:
        def send(self, message: object) -> None:
            pickle.dumps(message)
            sent.append(message)

    def fail(self: PlainCase) -> None:
        class LocalError(Exception):
            pass

        raise LocalError("odd")

    monkeypatch.setattr(PlainCase, "build", fail)
    _serve(cast(Connection, Pipe()), case)
    (message,) = sent
    assert isinstance(message, TrainingError)
    assert "odd" in str(message)


def _leave(*_: object) -> None:
    raise SystemExit(3)
