"""Precision of the products of training, and the loss scale that keeps float16 gradients alive.

Weights, optimizer state and every score that is ranked stay float32:

- ``fp32``: float32 products.
- ``tf32``: float32 in memory, products with 10 bits of mantissa; NVIDIA GPUs of compute capability
  8.0 or newer. There is none of it on a CPU, where it is refused.
- ``bf16``: bfloat16 products, float32 sums; GPUs from 8.0 on, and CPUs, fast where they have
  AVX512-BF16 or AMX.
- ``fp16``: float16 products, float32 sums, and a scaled loss. For GPUs without bfloat16; it works
  on a CPU too, at a tenth of float32's speed, so that it can be tested there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from foretaste._util.settings import check_settings
from foretaste.errors import SettingError, TrainingError
from foretaste.ops.precision_flags import EXACT, exact_half_sums, float32_products
from foretaste.training.config import LossScale, Precision

_COMPUTE_DTYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_AMPERE = (8, 0)
_INITIAL_SCALE = 2.0**16
_SMALLEST_SCALE = 1.0
_LARGEST_SCALE = 2.0**32
_GROWTH_STEPS = 2000


@dataclass(frozen=True, kw_only=True)
class PrecisionPolicy:
    """A precision on a device that computes it. Raises SettingError where the device does not."""

    precision: Precision
    """fp32, tf32, bf16 or fp16."""

    device: torch.device
    """The device of the training."""

    loss_scale: LossScale = None
    """A fixed scale of the loss, for fp16 only; None adapts it to the gradients."""

    def __post_init__(self) -> None:
        check_settings(self)
        _check_device(self.precision, self.device)
        if self.loss_scale is None:
            return
        if self.precision != "fp16":
            raise SettingError(
                f"loss_scale is {self.loss_scale:g}, but precision is {self.precision}; "
                "only fp16 scales its loss: use --precision fp16 or leave the scale out"
            )

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """Of the large products; None means as the weights are."""
        return _COMPUTE_DTYPES[self.precision]

    @contextmanager
    def products(self) -> Iterator[None]:
        """Within, float32 products are computed in this precision, and sums of half ones exactly.

        For training steps alone: what is ranked comes from full float32 products.
        """
        precision = "tf32" if self.precision == "tf32" else EXACT
        with float32_products(self.device, precision), exact_half_sums(self.device):
            yield

    def scaler(self) -> Scaler:
        """A new `LossScaler` for fp16, else an `Unscaled`."""
        if self.precision == "fp16":
            return LossScaler(self.device, self.loss_scale)
        return Unscaled()


def half_precision(device: torch.device) -> str:
    """bf16 where the device has it, else fp16: what ``--amp`` stands for."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _AMPERE:
        return "fp16"
    return "bf16"


def computes_tf32(device: torch.device) -> bool:
    """Whether the device computes products in tf32."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _AMPERE


class Scaler(Protocol):
    """Between loss and optimizers: ``scale(loss).backward()``, then ``step(optimizers)``."""

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to call ``backward`` on."""
        ...

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Update the weights by the gradients of the scaled loss."""
        ...

    def as_event(self) -> dict[str, float]:
        """Its entries of the metrics log; waits for the device."""
        ...

    def check_updates(self, num_steps: int) -> None:
        """TrainingError if none of the last ``num_steps`` changed a weight, nor a next one will."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All that resuming needs."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state_dict`."""
        ...


class Unscaled:
    """The `Scaler` of every precision whose gradients need none."""

    def scale(self, loss: Tensor) -> Tensor:
        return loss

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        for optimizer in optimizers:
            optimizer.step()

    def as_event(self) -> dict[str, float]:
        return {}

    def check_updates(self, num_steps: int) -> None:
        pass

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        assert not state, sorted(state)


class LossScaler:
    """The `Scaler` of fp16, for fused Adam; nothing in a step waits for the device.

    A step whose gradients are not all finite leaves weights and optimizer state alone. The scale
    starts at 2**16, is halved then, and doubled after 2,000 finite steps in a row (Micikevicius et
    al. 2018, arXiv 1710.03740, section 3.2); ``fixed`` keeps it where it is.
    """

    def __init__(self, device: torch.device, fixed: float | None = None) -> None:
        self.is_fixed = fixed is not None
        self.scale_tensor = torch.full((), fixed or _INITIAL_SCALE, device=device)
        self.num_finite = torch.zeros((), dtype=torch.int64, device=device)
        self.num_skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._num_skipped_before = 0

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.scale_tensor

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        gradients = [
            parameter.grad
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        overflowed = ~torch.nn.utils.get_total_norm(gradients, norm_type=math.inf).isfinite()
        for optimizer in optimizers:
            fused: Any = optimizer
            fused.grad_scale, fused.found_inf = self.scale_tensor, overflowed.float()
            try:
                optimizer.step()
            finally:
                del fused.grad_scale, fused.found_inf
        # In place, so that a captured step keeps working on the same tensors.
        self.num_skipped.add_(overflowed)
        if self.is_fixed:
            return
        self.num_finite.add_(1).mul_(~overflowed)
        grows = self.num_finite == _GROWTH_STEPS
        self.scale_tensor.mul_(1.0 - 0.5 * overflowed.float() + grows.float())
        self.scale_tensor.clamp_(min=_SMALLEST_SCALE, max=_LARGEST_SCALE)
        self.num_finite.mul_(~grows)

    def check_updates(self, num_steps: int) -> None:
        num_skipped = int(self.num_skipped.item())
        all_skipped = num_skipped - self._num_skipped_before >= num_steps
        if all_skipped and (self.is_fixed or self.scale_tensor.item() <= _SMALLEST_SCALE):
            raise TrainingError(
                f"no gradient of the last {num_steps} updates was finite in fp16 at loss scale "
                f"{self.scale_tensor.item():g}; use --precision bf16 or fp32"
            )
        self._num_skipped_before = num_skipped

    def as_event(self) -> dict[str, float]:
        return {
            "loss_scale": self.scale_tensor.item(),
            "num_skipped_steps": int(self.num_skipped.item()),
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "loss_scale": self.scale_tensor,
            "num_finite": self.num_finite,
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])
        self._num_skipped_before = int(self.num_skipped.item())


def _check_device(precision: str, device: torch.device) -> None:
    if device.type != "cuda":
        if precision == "tf32":
            raise SettingError(
                f"precision is tf32, which {device.type} does not compute: it is a mode of NVIDIA "
                "GPUs from compute capability 8.0 on; use fp32 or bf16"
            )
        return
    if precision in ("tf32", "bf16"):
        capability = torch.cuda.get_device_capability(device)
        if capability < _AMPERE:
            raise SettingError(
                f"precision is {precision}, which needs compute capability 8.0; "
                f"{torch.cuda.get_device_name(device)} has {capability[0]}.{capability[1]}: "
                "use fp16 or fp32"
            )
