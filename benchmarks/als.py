"""iALS beside the ``implicit`` package (``pip install implicit``): seconds of a sweep, measured
alternately.

Both go over the same generated data with vectors of the same width and the same threads: ours by
two preconditioned steps of conjugate gradients, ``implicit`` by its default, three without.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretaste._util.system import peak_of_process
from foretaste.bench.session import parse_shape
from foretaste.data.histories import Histories
from foretaste.data.synthetic import generate_histories
from foretaste.evaluation.ranking import to_device
from foretaste.models.ials.config import IALSConfig
from foretaste.models.ials.model import IALS


def our_sweep(histories: Histories, factors: int) -> Callable[[], None]:
    """A function that makes one of our sweeps."""
    model = IALS(IALSConfig(factors=factors), histories.num_users, histories.num_items)
    on_device = to_device(histories, torch.device("cpu"))
    model.count_items(on_device)
    model.reset_parameters(1)
    batch = next(iter(model.make_batches(on_device).epoch(0)))

    def sweep() -> None:
        model.sweep(batch)

    return sweep


def peer_sweep(histories: Histories, factors: int) -> Callable[[], None]:
    """A function that makes one iteration of ``implicit``, continuing the previous one."""
    als, sparse = import_module("implicit.cpu.als"), import_module("scipy.sparse")
    ones = np.ones(len(histories.item_index), dtype=np.float32)
    shape = (histories.num_users, histories.num_items)
    matrix = sparse.csr_matrix((ones, histories.item_index, histories.offsets), shape)
    model = als.AlternatingLeastSquares(
        factors=factors, iterations=1, num_threads=torch.get_num_threads()
    )

    def sweep() -> None:
        model.fit(matrix, show_progress=False)

    return sweep


def measure(shape: str, factors: int, repeats: int, with_peer: bool) -> list[dict[str, Any]]:
    """A row for each side: the seconds of each sweep, of the clock and of the processor in all
    threads, and the median of theirs to ours by turn, of the processor's."""
    histories = generate_histories(parse_shape(shape, "ials"))
    sweeps = {"ours": our_sweep(histories, factors)}
    if with_peer:
        sweeps["implicit"] = peer_sweep(histories, factors)
    seconds: dict[str, list[float]] = {side: [] for side in sweeps}
    cpu_seconds: dict[str, list[float]] = {side: [] for side in sweeps}
    for turn in range(repeats + 1):
        for side, sweep in sweeps.items():
            since, cpu_since = time.perf_counter(), time.process_time()
            sweep()
            if turn:  # the first warms up
                seconds[side].append(time.perf_counter() - since)
                cpu_seconds[side].append(time.process_time() - cpu_since)
    return [
        {
            "shape": shape,
            "factors": factors,
            "threads": torch.get_num_threads(),
            "side": side,
            "sweep_s": values,
            "median_s": statistics.median(values),
            "sweep_cpu_s": cpu_seconds[side],
            "median_cpu_s": statistics.median(cpu_seconds[side]),
            "times_ours": statistics.median(
                theirs / ours
                for theirs, ours in zip(cpu_seconds[side], cpu_seconds["ours"], strict=True)
            ),
            "peak_bytes": peak_of_process(),
        }
        for side, values in seconds.items()
    ]


def main() -> None:
    """Measure, print a line for each side and append the rows to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.als")
    parser.add_argument("--shape", default="ml-1m", help="as of foretaste bench train")
    parser.add_argument("--factors", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--without-peer", action="store_true", help="ours alone, for its memory")
    parser.add_argument("--output", type=Path, help="file of JSON lines; rows are appended")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for factors in given.factors:
        for row in measure(given.shape, factors, given.repeats, not given.without_peer):
            print(f"{row['side']:10} d {factors:4}  {row['median_s']:8.3f} s", end="")
            print(f"  {row['median_cpu_s']:8.3f} s of the processor", end="")
            print(f"  {row['times_ours']:6.2f} x ours", flush=True)
            if given.output:
                with given.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
