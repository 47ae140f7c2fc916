"""Forms of the operations measured against each other, and the verdict that is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foretaste.bench import kernels
from foretaste.bench.config import TrainBench
from foretaste.bench.kernels import bench_kernels
from foretaste.bench.session import Session
from foretaste.errors import SettingError, UnsupportedError
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.ops.triton import support
from foretaste.training.kernels import chosen

OPTIONS = TrainBench(
    shape="60x40x500", device="cpu", repeats=1, warmup=0, batch_size=(64, 128), steps=2
)
MODEL = NeuMFConfig(factors=4, layers=(8, 4))


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, cache: Path) -> tuple[Session, list[str]]:
    """A session that trains on the CPU and takes it for a GPU, where the other form is chunked too;
    and what it says."""
    said: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(support, "is_installed", lambda: True)
    monkeypatch.setattr(support, "version", lambda: "3.7.1")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
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
    return session, said


def test_the_fastest_form_of_each_case_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, said = on_a_gpu(monkeypatch, tmp_path)
    bench_kernels(session, OPTIONS)
    assert [row.case["kernels"] for row in session.rows] == ["chunked", "triton", "chunked"]
    assert "triton is left out: it does not fit" in said
    path = tmp_path / "foretaste" / "kernels.json"
    assert said[-1] == f"kernels auto takes chunked: {path}"
    first, second = json.loads(path.read_text())
    assert first["epoch_s"] == {"chunked": 2.0, "triton": 1.0}
    assert second["epoch_s"] == {"chunked": 2.0}
    found = [chosen("auto", "cuda:0", session.model, size, "fp32") for size in OPTIONS.batch_size]
    assert found == ["triton", "chunked"]


def test_a_cpu_has_one_form() -> None:
    with pytest.raises(SettingError, match="a CPU has one form of the operations"):
        bench_kernels(Session("kernels", MODEL, OPTIONS), OPTIONS)
