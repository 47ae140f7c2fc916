"""Compiles every kernel of the interaction for a GPU that may be absent; run by `test_triton`.

Usage: ``compile_kernels.py 80:256-64 86:256-64``: the compute capability without its point, and the
widths of the tower; what is printed of each ends in a line of dashes. The driver stands in for the
GPU's up to the launch, which does nothing: so Triton itself reports kernels that do not fit.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from foretaste.errors import UnsupportedError
from foretaste.ops.neumf_loss.inputs import TowerDropout
from foretaste.ops.triton import neumf_loss as triton_loss
from tests.ops.neumf_loss.test_chunked import Shape, make_inputs, make_samples

SHARED_LIMIT = {
    80: 163 << 10,
    86: 99 << 10,
    89: 99 << 10,
    90: 227 << 10,
    100: 227 << 10,
    120: 99 << 10,
}
"""Bytes that a block may take, by NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities"."""


class AbsentDriver:
    """The part of Triton's driver that compiling and launching use; a device for each GPU."""

    capability: int
    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": SHARED_LIMIT[device]},
        load_binary=lambda *given: (None, None, 0, 0, 1024),
    )

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def queue(*given: Any) -> None:
            print(f"{metadata.name}: {metadata.shared:,} bytes of shared memory")

        return queue


def compile_for(widths: tuple[int, ...]) -> None:
    shape = Shape(rows=30, factors=64, widths=widths)
    generator = torch.Generator().manual_seed(1)
    inputs = make_inputs(shape, generator, dtype=torch.float32)
    samples, dropout = make_samples(shape, generator), TowerDropout(0.5, key=1)
    try:
        triton_loss.loss(inputs, samples, dropout, compute_dtype=torch.bfloat16)
    except UnsupportedError as error:
        print(error)


if __name__ == "__main__":
    driver = AbsentDriver()
    triton.runtime.driver.set_active(driver)
    for case in sys.argv[1:]:
        capability, tower = case.split(":")
        driver.capability = int(capability)
        compile_for(tuple(map(int, tower.split("-"))))
        print("---")
