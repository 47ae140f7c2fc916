"""Compiles every kernel of the interaction for a GPU that need not be here; run by `test_triton`.

Usage: ``compile_kernels.py 90``, the compute capability without its point.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from foretaste.ops.neumf_loss.inputs import TowerDropout
from foretaste.ops.triton import neumf_loss as triton_loss
from foretaste.ops.triton import segments as triton_segments
from tests.ops.neumf_loss.test_chunked import Shape, make_inputs, make_samples

SHARED_LIMIT = {80: 163 << 10, 90: 227 << 10}
PAPER = Shape(rows=30, factors=8, widths=(32, 16, 8))
NVIDIA = Shape(rows=30, factors=64, widths=(256, 128, 64))
COMPILED = {
    80: [(PAPER, torch.bfloat16)],
    90: [(PAPER, torch.float16), (NVIDIA, torch.bfloat16)],
}


class AbsentDriver:
    """As much of Triton's driver as compiling asks for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def compile_instead(function: Any, num_programs: int, *args: Any, **options: Any) -> None:
    """In place of `triton_support.launch`."""
    found = function.warmup(*args, grid=(num_programs,), enable_fp_fusion=True, **options)
    print(f"{found.metadata.name}: {found.metadata.shared} bytes of shared memory")
    assert found.metadata.shared <= SHARED_LIMIT[triton.runtime.driver.active.capability]


def main(capability: int) -> None:
    triton.runtime.driver.set_active(AbsentDriver(capability))
    for module in (triton_loss, triton_segments):
        module.launch = compile_instead
    for shape, dtype in COMPILED[capability]:
        generator = torch.Generator().manual_seed(1)
        inputs = make_inputs(shape, generator, dtype=torch.float32)
        samples, dropout = make_samples(shape, generator), TowerDropout(0.5, key=1)
        triton_loss.loss(inputs, samples, dropout, compute_dtype=dtype)


if __name__ == "__main__":
    main(int(sys.argv[1]))
