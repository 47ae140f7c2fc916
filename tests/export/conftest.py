"""One registry of ONNX's operators for all exports: PyTorch would make it anew for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry


@pytest.fixture(scope="session", autouse=True)
def _one_registry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))
        )
        yield
