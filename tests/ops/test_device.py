"""Which device a name means."""

from __future__ import annotations

import pytest
import torch

from foretaste.errors import SettingError
from foretaste.ops.device import resolve_device


def test_cpu_is_the_cpu() -> None:
    assert resolve_device("cpu") == torch.device("cpu")


def test_auto_takes_a_gpu_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    made_current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", made_current.append)
    assert resolve_device("auto") == torch.device("cuda", 1)
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    assert [device.index for device in made_current] == [1, 1, 0]
    with pytest.raises(SettingError, match=r"'cuda:2' was asked for, but there are 2 GPUs"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:²", "CPU", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="choose auto, cpu, cuda or cuda:N"):
        resolve_device(name)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match="finds no CUDA GPU here; choose auto or cpu"):
        resolve_device("cuda")
