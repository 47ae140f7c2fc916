"""The choice of kernels and the checks of Triton's, in the interpreter.

Not collected by its name: `neumf_loss.test_triton` runs it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.ops.triton import checks
from foretaste.ops.triton import neumf_loss as triton_loss
from foretaste.ops.triton.checks import verify_kernels
from foretaste.training.strategy import ALONE
from tests.ops.cases import random_histories
from tests.training.plans import make_plan
from tests.training.test_step import NUM_ITEMS, NUM_USERS, losses, make_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_checked() -> Iterator[None]:
    checks.kernel_error.cache_clear()
    yield
    checks.kernel_error.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("operation", checks.CASES)
def test_kernels_are_right(operation: str, dtype: torch.dtype) -> None:
    verify_kernels({operation: dtype}, CPU)


def spoil(monkeypatch: pytest.MonkeyPatch, operation: str, change: Any) -> None:
    """Change the kernel's results in a check."""
    right = checks.CASES[operation]

    def wrong(implementation: Any, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        found = right(implementation, dtype, device)
        return change(found) if implementation == "triton" else found

    monkeypatch.setitem(checks.CASES, operation, wrong)


@pytest.mark.parametrize("which", [0, 3, 11])
def test_a_wrong_value_or_gradient_is_seen(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(found: list[Tensor]) -> list[Tensor]:
        found[which].view(-1)[-1] += 0.2 * found[which].abs().max()
        return found

    spoil(monkeypatch, "neumf_loss", change)
    with pytest.raises(UnsupportedError, match=r"neumf_loss\b.*float16"):
        verify_kernels({"neumf_loss": torch.float16}, CPU)


def test_tf32_is_allowed_its_own_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "float32_products", lambda *of: nullcontext())
    spoil(monkeypatch, "neumf_loss", lambda found: [tensor * (1 + 2.0**-11) for tensor in found])
    verify_kernels({"neumf_loss": torch.float32}, CPU, "tf32")
    with pytest.raises(UnsupportedError, match=r"4\.9e-04"):
        verify_kernels({"neumf_loss": torch.float32}, CPU)


def test_a_kernel_that_does_not_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("PassManager::run failed\nand much more")

    monkeypatch.setattr(triton_loss, "loss", fail)
    with pytest.raises(UnsupportedError, match="RuntimeError: PassManager::run failed"):
        verify_kernels({"neumf_loss": torch.float32}, CPU)


def test_nan_counts_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(found: list[Tensor]) -> list[Tensor]:
        return [tensor * torch.nan for tensor in found]

    spoil(monkeypatch, "embedding_bag", change)
    with pytest.raises(UnsupportedError, match=r"embedding_bag\b.*nan"):
        verify_kernels({"embedding_bag": torch.float32}, CPU)


@pytest.mark.parametrize("name", ["neumf", "vae"])
def test_a_training_by_kernels_learns_the_same(name: str) -> None:
    found = {}
    for form in ("chunked", "triton"):
        model = make_model(name)
        histories = random_histories(np.random.default_rng(1), NUM_USERS, NUM_ITEMS, share=0.03)
        plan = make_plan(kernels=form, batch_size=130 if name == "neumf" else 12)
        batches, step = ALONE.batches_and_step(model, histories, plan)
        assert model.implementation == form
        found[form] = losses(step, batches, num_epochs=1)
    assert found["triton"] == pytest.approx(found["chunked"], rel=1e-4)
