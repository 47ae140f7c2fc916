"""Traffic of a training step by formula, beside the limits of the host's memory and products.

    python -m benchmarks.traffic --threads 1

A line for each case: bytes that a step has to move between memory and processor, multiply-adds,
the time these take at the host's copy bandwidth and product throughput, both measured in the same
run, and the measured step. Activations are taken to stay in the cache, and forward and backward to
overlap their traffic with their products; Adam comes after them. All of it is float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.leaderboard import copy_gb_per_s
from benchmarks.session import needed_part
from foretaste._util.terminal import exit_with_status
from foretaste.bench.config import TrainBench
from foretaste.bench.session import Session
from foretaste.bench.train import measure_training
from foretaste.data.histories import Histories
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from foretaste.ops.dense import linear

FLOAT = 4
ADAM = 7 * FLOAT
"""Bytes per parameter: Adam reads it, its gradient and two moments, and writes all but the
gradient."""
SIDE = 1 << 11

SMALL = {"factors": 8, "layers": (64, 32, 16, 8)}
STEAM = "12393x5155x129511"
CASES: dict[str, tuple[NeuMFConfig | VAEConfig, str, int]] = {
    "neumf 64, 256-256-128-64": (NeuMFConfig(), "ml-1m", 1 << 16),
    "neumf 8, 64-32-16-8": (NeuMFConfig(**SMALL), "ml-1m", 1 << 16),  # type: ignore[arg-type]
    "vae ml-1m": (VAEConfig(), "ml-1m", 500),
    "vae ml-20m": (VAEConfig(), "ml-20m", 500),
    "vae steam": (VAEConfig(), STEAM, 500),
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """Bytes and multiply-adds of a step; ``update_bytes`` are Adam's."""

    num_bytes: int
    update_bytes: int
    multiply_adds: int

    def bound_s(self, bytes_per_s: float, multiply_adds_per_s: float) -> float:
        """Seconds that the step takes at least."""
        passes = max(self.num_bytes / bytes_per_s, self.multiply_adds / multiply_adds_per_s)
        return passes + self.update_bytes / bytes_per_s


def neumf_work(model: NeuMFConfig, parameters: int, items: int, rows: int) -> Work:
    """Work of ``rows`` interactions with their negatives.

    An item's rows are gathered for each sample, and so are their gradients, which are written in
    the order of samples and read in the order of items. Users' rows are read, their gradients
    written.
    """
    samples = rows * (1 + model.num_negatives)
    embedding, first, *others = (model.layers[0] // 2, *model.layers[1:])
    widths = [first, *others]
    tower = sum(width * after for width, after in zip(widths, others, strict=False))
    each_sample = tower + widths[-1] + model.factors
    projections = (items + rows) * embedding * first
    gathered = samples * (model.factors + first + 2 * first)
    users = 2 * rows * (model.factors + embedding)
    return Work(
        num_bytes=FLOAT * (gathered + users + parameters),
        update_bytes=ADAM * parameters,
        multiply_adds=3 * (samples * each_sample + projections),
    )


def vae_work(model: VAEConfig, parameters: int, items: int, users: int, entries: int) -> Work:
    """Work of ``users`` with ``entries`` interactions in all.

    The encoder's rows of these are read, and their gradients written; the decoder's weights are
    read forward and backward. Every gradient is written once.
    """
    hidden = model.hidden[0]
    inner = hidden * 2 * model.latent + model.latent * hidden
    return Work(
        num_bytes=FLOAT * (2 * entries * hidden + 2 * items * hidden + parameters),
        update_bytes=ADAM * parameters,
        multiply_adds=2 * entries * hidden + 3 * users * (inner + items * hidden),
    )


def products_per_s() -> float:
    """Multiply-adds in a second of a square float32 product, the best of five."""
    left, right = torch.rand(2, SIDE, SIDE)
    seconds = []
    for _ in range(5):
        since = time.perf_counter()
        linear(left, right)
        seconds.append(time.perf_counter() - since)
    return SIDE**3 / min(seconds)


def measure(given: argparse.Namespace) -> None:
    """Print the host's rates, then a line for each case."""
    torch.set_num_threads(given.threads)
    bytes_per_s, multiply_adds_per_s = 1e9 * copy_gb_per_s(), products_per_s()
    print(f"{bytes_per_s / 1e9:.1f} GB/s copied, {multiply_adds_per_s / 1e9:.1f} G multiply-adds/s")
    print("| case | batch | MB | Adam's MB | G multiply-adds | bound | step | of the bound |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.cases:
        model, shape, batch_size = CASES[name]
        options = TrainBench(shape=shape, device="cpu", repeats=given.repeats, precision=("fp32",))
        session = Session("traffic", model, options)
        histories = needed_part(session, session.histories(), batch_size, given.steps)
        step_s, work = _measured(session, histories, batch_size)
        bound_s = work.bound_s(bytes_per_s, multiply_adds_per_s)
        print(
            f"| {name} | {batch_size:,} | {work.num_bytes / 1e6:,.0f} "
            f"| {work.update_bytes / 1e6:,.0f} | {work.multiply_adds / 1e9:.2f} "
            f"| {1e3 * bound_s:.1f} ms | {1e3 * step_s:.1f} ms | {bound_s / step_s:.2f} |",
            flush=True,
        )


def _measured(session: Session, histories: Histories, batch_size: int) -> tuple[float, Work]:
    """Seconds of a step, in the best of the epochs, and its work by formula."""
    plan = session.plan("fp32", batch_size, 1 + session.options.repeats)
    case, epochs = measure_training(session, histories, plan, 1)
    num_steps, items = case["updates"], histories.num_items
    built = session.build(histories)
    parameters = sum(one.numel() for one in built.parameters() if one.requires_grad)
    model, entries = session.model, histories.num_interactions // num_steps
    if isinstance(model, NeuMFConfig):
        work = neumf_work(model, parameters, items, entries)
    else:
        assert isinstance(model, VAEConfig)
        users = histories.num_users // num_steps
        work = vae_work(model, parameters, items, users, entries)
    return min(epochs.seconds) / num_steps, work


def main(tokens: Sequence[str] | None = None) -> None:
    """Measure every case; a mistake exits with status 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traffic", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="in a measurement")
    with exit_with_status():
        measure(parser.parse_args(tokens))


if __name__ == "__main__":
    main()
