"""The choice between the forms of the operations, where no kernel runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from foretaste.errors import SettingError, UnsupportedError
from foretaste.ops.kernels import chosen, require_right
from foretaste.ops.triton import support


def test_auto_is_the_chunked_form_on_every_device() -> None:
    assert [chosen("auto", device) for device in ("cpu", "cuda", "cuda:1")] == ["chunked"] * 3


def test_kernels_are_those_asked_for() -> None:
    assert [chosen(one, "cuda") for one in ("chunked", "triton")] == ["chunked", "triton"]
    with pytest.raises(SettingError, match=r"kernels is triton.*the device is the CPU"):
        chosen("triton", "cpu")


@pytest.mark.parametrize(("capability", "is_installed"), [((7, 5), True), ((9, 0), False)])
def test_kernels_without_triton_or_on_an_old_gpu_are_refused(
    capability: tuple[int, int], is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(support, "is_installed", lambda: is_installed)
    gpu = SimpleNamespace(type="cuda")
    with pytest.raises(UnsupportedError, match=r"needs Triton and an NVIDIA GPU of .* 8\.0"):
        require_right({}, gpu)  # type: ignore[arg-type]
