"""Refusals before any kernel runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from foretaste.errors import UnsupportedError
from foretaste.ops.triton import support
from foretaste.ops.triton.checks import verify_kernels
from tests.messages import raises


@pytest.mark.parametrize(("capability", "is_installed"), [((7, 5), True), ((9, 0), False)])
def test_kernels_without_triton_or_on_an_old_gpu_are_refused(
    capability: tuple[int, int], is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(support, "is_installed", lambda: is_installed)
    gpu = SimpleNamespace(type="cuda")
    with raises(UnsupportedError, "triton", 8.0):
        verify_kernels({}, gpu)  # type: ignore[arg-type]
