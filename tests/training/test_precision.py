"""Precisions on a device, and trainings in each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from foretaste.data import Dataset
from foretaste.errors import SettingError
from foretaste.training.optimizer import LossScaler, Scaler
from foretaste.training.precision import PrecisionPolicy, half_precision
from tests.messages import raises
from tests.training.trainings import events, run_of

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The compute capability of a pretended GPU."""
    found = [9, 0]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: tuple(found))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    return found


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", None), ("tf32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_the_dtype_of_products(
    precision: str, dtype: torch.dtype | None, capability: list[int]
) -> None:
    assert PrecisionPolicy(precision=precision, device=CUDA).compute_dtype == dtype


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_float32_products_on_a_gpu_and_after(precision: str, capability: list[int]) -> None:
    matmul = torch.backends.cuda.matmul
    wanted, application = ("tf32", "ieee") if precision == "tf32" else ("ieee", "tf32")
    matmul.fp32_precision = application
    try:
        with PrecisionPolicy(precision=precision, device=CUDA).products():
            assert matmul.fp32_precision == wanted
            assert not matmul.allow_bf16_reduced_precision_reduction
        assert matmul.fp32_precision == application
        assert matmul.allow_bf16_reduced_precision_reduction
    finally:
        matmul.fp32_precision = "none"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_float32_products_on_a_cpu_are_exact(precision: str) -> None:
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    matmul.fp32_precision = "bf16"
    try:
        with PrecisionPolicy(precision=precision, device=CPU).products():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = "none"


def test_tf32_is_refused_on_the_cpu() -> None:
    with raises(SettingError, "precision", "tf32", "cpu", 8.0, "fp32 or bf16"):
        PrecisionPolicy(precision="tf32", device=CPU)
    for precision in ("fp32", "bf16", "fp16"):
        PrecisionPolicy(precision=precision, device=CPU)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_old_gpus_are_refused_what_they_lack(precision: str, capability: list[int]) -> None:
    capability[:] = [7, 5]
    with raises(SettingError, "precision", precision, 8.0, "Tesla T4", 7.5, "fp16 or fp32"):
        PrecisionPolicy(precision=precision, device=CUDA)
    PrecisionPolicy(precision="fp16", device=CUDA)


def test_half_precision_is_bf16_if_the_device_has_it(capability: list[int]) -> None:
    assert half_precision(CPU) == half_precision(CUDA) == "bf16"
    capability[:] = [7, 5]
    assert half_precision(CUDA) == "fp16"


def test_only_fp16_is_scaled() -> None:
    with raises(SettingError, "loss_scale", 128, "bf16", "--precision fp16"):
        PrecisionPolicy(precision="bf16", device=CPU, loss_scale=128.0)
    assert isinstance(PrecisionPolicy(precision="fp16", device=CPU).scaler(), LossScaler)
    assert type(PrecisionPolicy(precision="bf16", device=CPU).scaler()) is Scaler


def test_the_loss_scale_is_logged_and_changes_no_weights(dataset: Dataset, tmp_path: Path) -> None:
    found = []
    for scale in (1024.0, 4096.0):
        path = tmp_path / str(scale)
        run = run_of("neumf", dataset, path, precision="fp16", loss_scale=scale, epochs=2)
        assert [event["loss_scale"] for event in events(run, "epoch")] == [scale, scale]
        assert [event["num_skipped_steps"] for event in events(run, "epoch")] == [0, 0]
        found.append(run.load_weights())
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name])
