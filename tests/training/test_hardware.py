"""What of the machine a run remembers."""

from __future__ import annotations

import pytest
import torch

from foretaste.training.checkpoint import hardware_of


def test_a_cpu_decides_by_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    assert hardware_of(torch.device("cpu")) == {"num_threads": 5}


def test_a_gpu_decides_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {torch.device("cuda:1"): "NVIDIA H200"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    assert hardware_of(torch.device("cuda:1")) == {"gpu": "NVIDIA H200"}
