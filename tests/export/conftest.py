"""One registry of ONNX's operators for all exports: PyTorch would make it anew for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_registry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # The registry is private: a PyTorch without this name makes one for each export.
        with suppress(ImportError, AttributeError):
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            kept = staticmethod(cache(ONNXRegistry.from_torchlib))
            patch.setattr(ONNXRegistry, "from_torchlib", kept)
        yield
