"""The one place that chooses the form of the operations: `chunked`, or Triton's kernels.

Each operation has a reference, its definition, and a chunked form, which runs anywhere; some have a
kernel for NVIDIA GPUs. ``auto`` is the chunked form on every device: no GPU has measured yet where
a kernel is faster. A kernel that compiles may still be wrong on an architecture that nobody tried,
so one that is asked for must first pass its check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from foretaste.errors import SettingError, UnsupportedError
from foretaste.ops.triton import checks
from foretaste.ops.triton import support as triton_support

Form = Literal["chunked", "triton"]


def chosen(kernels: Literal["auto", "chunked", "triton"], device: str) -> Form:
    """The form that ``kernels`` is; SettingError for Triton's on a CPU."""
    if kernels == "triton" and device == "cpu":
        raise SettingError(
            "kernels is triton, whose kernels are for NVIDIA GPUs, and the device is the CPU; "
            "leave it out"
        )
    return "triton" if kernels == "triton" else "chunked"


def require_right(dtypes: Mapping[str, torch.dtype], device: torch.device) -> None:
    """UnsupportedError where a kernel is wrong on ``device``, or does not run there.

    ``dtypes`` has the dtype of each operation, by its name in `checks.CASES`.
    """
    if device.type == "cuda" and not triton_support.can_run(device):
        raise UnsupportedError(
            "kernels is triton, which needs Triton and an NVIDIA GPU of compute capability 8.0 or "
            "newer; leave it out"
        )
    for operation, dtype in dtypes.items():
        if (problem := checks.problem_of(operation, dtype, device)) is not None:
            gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
            raise UnsupportedError(
                f"kernels is triton, and on {gpu} the kernel of {operation} in {dtype} is not "
                f"right: {problem}; leave it out"
            )
