"""Compiles every kernel of the interaction for a GPU that need not be here; run by `test_triton`.

Usage: ``compile_kernels.py 90``, the compute capability without its point.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout
from foretaste.ops.neumf_loss.triton import logits as triton_logits
from foretaste.ops.neumf_loss.triton import loss as triton_loss
from foretaste.ops.triton import segments as triton_segments
from tests.ops.neumf_loss.test_chunked import Shape, make_inputs, make_samples, moved

SHARED_LIMIT = {80: 163 << 10, 90: 227 << 10}
PAPER = Shape(rows=30, factors=8, widths=(32, 16, 8))
NVIDIA = Shape(rows=30, factors=64, widths=(256, 128, 64))
COMPILED = {
    80: [(PAPER, torch.bfloat16)],
    90: [(PAPER, torch.float16), (NVIDIA, torch.bfloat16)],
}
SCORED = {
    80: [(NVIDIA, torch.float16), (NVIDIA, torch.float32)],
    90: [(PAPER, torch.float32), (NVIDIA, torch.bfloat16), (NVIDIA, torch.float32)],
}
SCORING = "interaction_logits"
SCORING_SHARED_LIMIT = 48 << 10
"""Every GPU has this much; beyond it, fewer programs run side by side."""
SCORING_SPILLED_LIMIT = 64


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
    name, shared = found.metadata.name, found.metadata.shared
    spilled = spilled_bytes(found.asm["cubin"])
    print(f"{name}: {shared} bytes of shared memory, {spilled} of registers spilled")
    assert shared <= SHARED_LIMIT[triton.runtime.driver.active.capability]
    if name == SCORING:
        assert shared <= SCORING_SHARED_LIMIT
        assert spilled <= SCORING_SPILLED_LIMIT


def spilled_bytes(binary: bytes) -> int:
    """Memory of a thread of a compiled kernel for values that found no register."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        done = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    found = re.search(r"STACK:(\d+)", done.stdout)
    assert found, done.stdout
    return int(found[1])


def main(capability: int) -> None:
    triton.runtime.driver.set_active(AbsentDriver(capability))
    for module in (triton_logits, triton_loss, triton_segments):
        module.launch = compile_instead
    for shape, dtype in COMPILED[capability]:
        inputs, samples = make(shape)
        print("loss", shape, dtype)
        triton_loss.loss(inputs, samples, TowerDropout(0.5, key=1), compute_dtype=dtype)
    for shape, dtype in SCORED[capability]:
        inputs, samples = make(shape)
        print("logits", shape, dtype)
        triton_logits.logits(inputs, samples.item_index_BK, compute_dtype=dtype)
        triton_logits.catalogue_logits(moved(inputs, dtype))


def make(shape: Shape) -> tuple[InteractionInputs, Samples]:
    generator = torch.Generator().manual_seed(1)
    inputs = make_inputs(shape, generator, dtype=torch.float32)
    return inputs, make_samples(shape, generator)


if __name__ == "__main__":
    main(int(sys.argv[1]))
