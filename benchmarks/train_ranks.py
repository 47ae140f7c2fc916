"""Training on the ranks of torchrun: strong and weak scaling, as ``foretaste bench train`` prints.

torchrun --nproc-per-node 8 -m -- benchmarks.train_ranks neumf --precision bf16
"""

from __future__ import annotations

from benchmarks.command import run
from benchmarks.session import TrainSteps
from foretaste.bench.train import bench_train

NAME = "train-ranks"
OPTIONS: dict[str, type[TrainSteps]] = {"neumf": TrainSteps, "vae": TrainSteps}
measure = bench_train


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
