"""Precision of the products of training.

Weights, optimizer state and every score that is ranked stay float32:

- ``fp32``: float32 products.
- ``tf32``: float32 in memory, products with 10 bits of mantissa; NVIDIA GPUs of compute capability
  8.0 or newer. A CPU has no tf32 and refuses it.
- ``bf16``: bfloat16 products, float32 sums; GPUs from 8.0 on, and CPUs, fast if they have
  AVX512-BF16 or AMX. - ``fp16``: float16 products, float32 sums, and a scaled loss. For GPUs
  without bfloat16; it works on a CPU too, at a tenth of float32's speed, so that it can be tested
  there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from foretaste.errors import SettingError
from foretaste.ops.precision_flags import EXACT, exact_half_sums, float32_products
from foretaste.training.config import LossScale, Precision
from foretaste.training.optimizer import LossScaler, Scaler

_COMPUTE_DTYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_AMPERE = (8, 0)


@dataclass(frozen=True, kw_only=True)
class PrecisionPolicy:
    """A precision on a device that computes it. Raises SettingError if the device does not."""

    precision: Precision
    """fp32, tf32, bf16 or fp16."""

    device: torch.device
    """The device of the training."""

    loss_scale: LossScale = None
    """A fixed scale of the loss, for fp16 only; None adapts it to the gradients."""

    def __post_init__(self) -> None:
        if self.precision == "tf32" and self.device.type != "cuda":
            raise SettingError(
                f"precision is tf32, which {self.device.type} does not compute: it is a mode of "
                "NVIDIA GPUs from compute capability 8.0 on; use fp32 or bf16"
            )
        if self.precision in ("tf32", "bf16") and self.device.type == "cuda":
            capability = torch.cuda.get_device_capability(self.device)
            if capability < _AMPERE:
                raise SettingError(
                    f"precision is {self.precision}, which needs compute capability 8.0; "
                    f"{torch.cuda.get_device_name(self.device)} has "
                    f"{capability[0]}.{capability[1]}: use fp16 or fp32"
                )
        if self.loss_scale is not None and self.precision != "fp16":
            raise SettingError(
                f"loss_scale is {self.loss_scale:g}, but precision is {self.precision}; "
                "only fp16 scales its loss: use --precision fp16 or leave the scale out"
            )

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """Dtype of the large products; None means the weights' dtype."""
        return _COMPUTE_DTYPES[self.precision]

    @property
    def float32(self) -> str:
        """Precision of float32 products: ``tf32`` or ``ieee``."""
        return "tf32" if self.precision == "tf32" else EXACT

    @contextmanager
    def products(self) -> Iterator[None]:
        """Compute float32 products in this precision and sum half precision in float32.

        For training steps only: scores that are ranked come from full float32 products.
        """
        # PyTorch has no switch for a single call: its flags are the whole process's.
        with float32_products(self.device, self.float32), exact_half_sums(self.device):
            yield

    def scaler(self) -> Scaler:
        """Return a new `LossScaler` for fp16, else a `Scaler`."""
        if self.precision == "fp16":
            return LossScaler(self.device, self.loss_scale)
        return Scaler()


def half_precision(device: torch.device) -> str:
    """bf16 if the device has it, else fp16: the meaning of ``--amp``."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _AMPERE:
        return "fp16"
    return "bf16"
