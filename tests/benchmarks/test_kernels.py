"""Forms of the operations measured against each other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import kernels
from benchmarks.session import TrainSteps
from foretaste.bench.session import Session
from foretaste.errors import SettingError, UnsupportedError
from foretaste.models.neumf.config import NeuMFConfig
from tests.messages import raises

OPTIONS = TrainSteps(
    shape="60x40x500", device="cpu", repeats=1, warmup=0, batch_size=(64, 128), steps=2
)
MODEL = NeuMFConfig(factors=4, layers=(8, 4))


def test_the_fastest_form_of_each_case_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # A session that trains on the CPU and takes it for a GPU, whose other form is chunked too.
    said: list[str] = []
    session = Session("kernels", MODEL, OPTIONS, log=said.append)
    histories = session.histories()
    cases = [(histories, session.plan("fp32", size, 1)) for size in OPTIONS.batch_size]
    session.device = SimpleNamespace(type="cuda")  # type: ignore[assignment]
    measure = kernels.measure_training

    def measured(session: Session, part: Any, plan: Any, warmup: int) -> Any:
        if plan.kernels == "triton" and plan.batch_size == 128:
            raise UnsupportedError("it does not fit")
        session.device = torch.device("cpu")
        case, epochs = measure(session, part, replace(plan, kernels="chunked"), warmup)
        session.device = SimpleNamespace(type="cuda")  # type: ignore[assignment]
        epochs.seconds = [1.0 if plan.kernels == "triton" else 2.0]
        return case | {"kernels": plan.kernels}, epochs

    monkeypatch.setattr(kernels, "measure_training", measured)
    monkeypatch.setattr(kernels, "training_cases", lambda *given: cases)
    kernels.measure(session, OPTIONS)
    assert [row.case["kernels"] for row in session.rows] == ["chunked", "triton", "chunked"]
    assert said[-3:] == [
        "fp32, 64 samples a batch: --kernels triton is the fastest",
        "triton is left out: it does not fit",
        "fp32, 128 samples a batch: --kernels chunked is the fastest",
    ]


def test_a_cpu_has_one_form() -> None:
    with raises(SettingError):
        kernels.measure(Session("kernels", MODEL, OPTIONS), OPTIONS)
