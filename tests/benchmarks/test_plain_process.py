"""The plain loop in a process of its own."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import pytest

from benchmarks.plain_process import PlainCase, PlainProcess
from foretaste.bench.config import BenchConfig
from foretaste.bench.session import Session
from foretaste.errors import TrainingError
from foretaste.models.vae.config import VAEConfig
from tests.benchmarks.forked import fork_plain_loops
from tests.messages import raises


@pytest.fixture
def case() -> PlainCase:
    options = BenchConfig(shape="60x30x400", device="cpu")
    session = Session("train", VAEConfig(hidden=(8,), latent=4), options)
    plan = session.plan("fp32", 20, 1)
    return PlainCase(session.model, session.histories(), plan, "fp32", 10, 1)


def test_epochs_are_trained_when_asked_for_until_the_process_is_killed(case: PlainCase) -> None:
    with closing(PlainProcess(case)) as plain:
        assert plain.chunk == 10
        assert plain.epochs.build_s > 0
        for is_warmup in (True, False, False):
            plain.train_epoch(is_warmup)
        numbers = plain.epochs.as_numbers("users")
        assert len(numbers["epoch_s"]["values"]) == 2
        assert numbers["warmup_s"] > 0
        assert numbers["peak_memory_is"]
        for process in plain._pool._processes.values():
            process.kill()
        with raises(TrainingError, "--shape"):
            plain.train_epoch(False)


def test_errors_of_the_process_are_raised_here(
    case: PlainCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_plain_loops(monkeypatch)
    plan = dataclasses.replace(case.plan, device="elsewhere")
    with pytest.raises(RuntimeError, match="elsewhere"):
        PlainProcess(dataclasses.replace(case, plan=plan))
