"""The device of a name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretaste.data.histories import Histories
from foretaste.errors import SettingError, UnsupportedError
from foretaste.evaluation.ranking import to_device
from foretaste.ops.device import computing_with, resolve_device
from foretaste.ops.triton import support
from tests.messages import raises, says

BUILT_FOR = ["sm_75", "sm_80", "sm_90a", "sm_100", "compute_120"]


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> list[Any]:
    """Pretend two GPUs of a compute capability, the second current; return devices made current."""
    made_current: list[Any] = []
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 1,
        "set_device": made_current.append,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: "a GPU",
        "get_arch_list": lambda: BUILT_FOR,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made_current


def test_auto_takes_a_gpu_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    made_current = pretend_gpus(monkeypatch, (8, 0))
    assert resolve_device("auto") == torch.device("cuda", 1)
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    assert [device.index for device in made_current] == [1, 1, 0]
    with raises(SettingError, "cuda:2", 2, "cuda:1"):
        resolve_device("cuda:2")


def test_a_fork_of_a_process_with_a_gpu_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, (9, 0))
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    for name in ("auto", "cuda", "cuda:1"):
        with raises(UnsupportedError, "spawn", "device cpu"):
            resolve_device(name)
    histories = Histories.empty(num_users=1, num_items=2)
    with raises(UnsupportedError, "spawn", "device cpu"):
        to_device(histories, torch.device("cuda"))
    assert resolve_device("cpu") == to_device(histories, torch.device("cpu")).offsets.device


@pytest.mark.parametrize("capability", [(7, 5), (8, 6), (9, 0), (13, 0)])
def test_auto_takes_a_gpu_that_this_pytorch_supports(
    capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, capability)
    assert resolve_device("auto") == torch.device("cuda", 1)


@pytest.mark.parametrize("capability", [(7, 0), (9, 1), (11, 0)])
def test_auto_leaves_a_gpu_without_code_in_pytorch(
    capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, capability)
    with pytest.warns(RuntimeWarning) as warned:
        assert resolve_device("auto") == torch.device("cpu")
    number = f"{capability[0]}.{capability[1]}"
    says(
        warned[0].message, "a GPU", number, torch.__version__, ", ".join(torch.cuda.get_arch_list())
    )


@pytest.mark.parametrize(("capability", "can_run"), [((7, 5), False), ((8, 0), True)])
def test_triton_needs_compute_capability_8_0(
    capability: tuple[int, int], can_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, capability)
    monkeypatch.setattr(support, "is_installed", lambda: True)
    assert support.can_run(torch.device("cuda", 0)) == can_run
    assert not support.can_run(torch.device("cpu"))


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1"])
def test_another_name_is_refused(name: str) -> None:
    with raises(SettingError, "device", name, "cuda:N"):
        resolve_device(name)


def test_a_missing_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with raises(SettingError, "cuda", torch.__version__):
        resolve_device("cuda")


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()
    found = []

    def failing() -> None:
        with computing_with(before + 1):
            found.append(torch.get_num_threads())
            raise RuntimeError("within")

    with pytest.raises(RuntimeError, match="within"):
        failing()
    assert found == [before + 1]
    assert torch.get_num_threads() == before
    with computing_with(None):
        assert torch.get_num_threads() == before
    with raises(SettingError, "threads", 0), computing_with(0):
        pass
    assert torch.get_num_threads() == before
