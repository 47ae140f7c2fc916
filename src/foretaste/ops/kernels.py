"""Checks of our Triton kernels before they are used, and the names of their forms.

Each operation has a reference, its definition, and a chunked form, which runs anywhere; some have a
kernel for NVIDIA GPUs. A kernel that compiles may still be wrong on an architecture that nobody
tried, so it must first pass its check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from foretaste.errors import UnsupportedError
from foretaste.ops.precision_flags import EXACT
from foretaste.ops.triton import checks
from foretaste.ops.triton import support as triton_support

Form = Literal["chunked", "triton"]


def require_right(
    dtypes: Mapping[str, torch.dtype], device: torch.device, float32: str = EXACT
) -> None:
    """UnsupportedError where a kernel is wrong on ``device``, or does not run there.

    ``dtypes`` has the dtype of each operation, by its name in `checks.CASES`; ``float32`` is the
    precision of float32 products, ``ieee`` or ``tf32``.
    """
    if device.type == "cuda" and not triton_support.can_run(device):
        raise UnsupportedError(
            "kernels is triton, which needs Triton and an NVIDIA GPU of compute capability 8.0 or "
            "newer; leave it out"
        )
    for operation, dtype in dtypes.items():
        if (problem := checks.problem_of(operation, dtype, device, float32)) is not None:
            gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
            raise UnsupportedError(
                f"kernels is triton, and on {gpu} the kernel of {operation} in {dtype} is not "
                f"right: {problem}; leave it out"
            )
