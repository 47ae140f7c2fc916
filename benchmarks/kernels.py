"""Training with each form of a GPU's operations: `foretaste bench kernels`, from a clone."""

from __future__ import annotations

from benchmarks.command import run
from foretaste.bench.config import TrainBench
from foretaste.bench.kernels import bench_kernels

NAME = "kernels"
OPTIONS = dict.fromkeys(("neumf", "vae"), TrainBench)

if __name__ == "__main__":
    run(NAME, OPTIONS, bench_kernels)
