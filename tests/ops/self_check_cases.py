"""The self-checks of the Triton kernels, in the interpreter.

Not collected by its name: `neumf_loss.test_triton` runs it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from foretaste.ops import self_check
from foretaste.ops.neumf_loss.triton import loss as triton_loss
from foretaste.ops.self_check import is_trusted

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_verdicts() -> Iterator[None]:
    self_check._verdicts.clear()
    yield
    self_check._verdicts.clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("operation", self_check._CASES)
def test_kernels_are_trusted(operation: str, dtype: torch.dtype) -> None:
    assert is_trusted(operation, dtype, CPU)


@pytest.mark.parametrize("which", range(12))
def test_a_wrong_value_or_gradient_is_seen(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_check._CASES["neumf_loss"]

    def wrong(implementation: Any, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        found = right(implementation, dtype, device)
        if implementation == "triton":
            found[which].view(-1)[-1] += 0.2 * found[which].abs().max()
        return found

    monkeypatch.setitem(self_check._CASES, "neumf_loss", wrong)
    with pytest.warns(
        RuntimeWarning, match="neumf_loss in torch.float16 is not used on cpu: it is off by"
    ):
        assert not is_trusted("neumf_loss", torch.float16, CPU)
    assert not is_trusted("neumf_loss", torch.float16, CPU)  # and says so once


def test_a_kernel_that_does_not_compile_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("PassManager::run failed\nand much more")

    monkeypatch.setattr(triton_loss, "loss", fail)
    with pytest.warns(RuntimeWarning, match=r"\(RuntimeError: PassManager::run failed\); PyTorch"):
        assert not is_trusted("neumf_loss", torch.float32, CPU)


def test_nothing_that_is_nan_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_check._CASES["embedding_bag"]

    def broken(implementation: Any, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        found = right(implementation, dtype, device)
        return [tensor * torch.nan for tensor in found] if implementation == "triton" else found

    monkeypatch.setitem(self_check._CASES, "embedding_bag", broken)
    with pytest.warns(RuntimeWarning, match="off by nan"):
        assert not is_trusted("embedding_bag", torch.float32, CPU)
