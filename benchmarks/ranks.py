"""Two ranks of one thread beside one process of two threads, on the same two cores.

    python -m benchmarks.ranks --output rows.jsonl

The same batches are trained by both, in turns, each time in new processes; ratios are of
neighbouring turns. Memory is the peak of the rank that takes most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from foretaste.bench.config import BenchConfig, TrainBench
from foretaste.bench.measure import Spread
from foretaste.bench.rows import OURS, table_of
from foretaste.bench.session import Session
from foretaste.bench.train import CLOCKS, measure_training, training_cases
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig

TIMEOUT_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training to measure."""

    model: NeuMFConfig | VAEConfig
    shape: str
    batch_size: int
    steps: int | None = None


CASES = {
    "neumf": Case(model=NeuMFConfig(), shape="ml-20m", batch_size=1_048_576, steps=4),
    "vae": Case(model=VAEConfig(), shape="ml-20m", batch_size=24_576, steps=1),
    "user table": Case(
        model=NeuMFConfig(layers=(128, 64)),
        shape="1000000x2000x4000000",
        batch_size=1 << 18,
        steps=2,
    ),
}
"""NeuMF by users and Mult-VAE by data at the reference's sizes; a large user table."""

_NEUMF, _VAE = NeuMFConfig(factors=4, layers=(8, 8, 4)), VAEConfig(hidden=(8,), latent=4)
TINY = {
    name: Case(
        model=_NEUMF if isinstance(case.model, NeuMFConfig) else _VAE,
        shape="60x50x600",
        batch_size=20,
        steps=2,
    )
    for name, case in CASES.items()
}


def main(tokens: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--data-cache", type=Path)
    parser.add_argument("--threads", type=int, help="of a worker, which measures one case once")
    arguments = parser.parse_args(tokens)
    if arguments.threads is not None:
        measure_one(arguments)
        return
    rows = [
        row
        for name in arguments.cases
        for precision in arguments.precision
        for row in measure_pair(name, precision, arguments).rows
    ]
    print(f"\n{table_of(rows).to_markdown()}")


def measure_one(arguments: argparse.Namespace) -> None:
    """Train a case on the ranks that torchrun started, or alone; the first prints its numbers."""
    (name,), (precision,) = arguments.cases, arguments.precision
    case = _case(name, arguments)
    config = TrainBench(
        shape=case.shape,
        device="cpu",
        threads=arguments.threads,
        repeats=arguments.repeats,
        precision=(precision,),
        batch_size=(case.batch_size,),
        steps=case.steps,
        data_cache=arguments.data_cache,
    )
    with Session.of_ranks("ranks", case.model, config) as session:
        ((part, plan),) = training_cases(session, config)
        found, epochs = measure_training(session, part, plan, config.warmup, ranks=session.ranks)
        if session.ranks.is_first:
            print(json.dumps({"case": found, "numbers": epochs.as_numbers(session.unit)}))


def measure_pair(name: str, precision: str, arguments: argparse.Namespace) -> Session:
    """Both sides in turns; a row for each."""
    case = _case(name, arguments)
    options = BenchConfig(shape=case.shape, device="cpu", output=arguments.output)
    session = Session("ranks", case.model, options)
    rate = f"{session.unit}_per_s"
    turns: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for turn in range(arguments.turns):
        for num_ranks in turns:
            print(f"{name}, {precision}, turn {turn + 1}: {num_ranks} ranks", file=sys.stderr)
            turns[num_ranks].append(_worker(name, precision, num_ranks, arguments))
    rates = {n: [one["numbers"][rate]["median"] for one in found] for n, found in turns.items()}
    for num_ranks, found in turns.items():
        memories = [one["numbers"]["peak_memory_mib"] for one in found]
        numbers = {
            rate: Spread.of(rates[num_ranks]).as_dict(),
            "peak_memory_mib": median(memories),
            "peak_memory_is": found[0]["numbers"]["peak_memory_is"],
        }
        if num_ranks == 2:
            ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
            numbers["times_one"] = Spread.of(ratios).as_dict()
            numbers["sent_mib"] = found[0]["numbers"]["sent_mib"]
        shared = {"case": name, "ranks": num_ranks, "threads": 2 // num_ranks}
        session.add(OURS, shared | found[0]["case"], CLOCKS[session.name], numbers)
    return session


def _worker(
    name: str, precision: str, num_ranks: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    module = ["-m", "benchmarks.ranks"]
    if num_ranks > 1:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(num_ranks)]
        module = [*launch, "-m", "--", "benchmarks.ranks"]
    words = ["--cases", name, "--precision", precision, "--repeats", str(arguments.repeats)]
    words += ["--threads", str(2 // num_ranks), *(["--tiny"] if arguments.tiny else [])]
    if arguments.data_cache is not None:
        words += ["--data-cache", str(arguments.data_cache)]
    environment = os.environ | {"OMP_NUM_THREADS": str(2 // num_ranks), "GOMP_SPINCOUNT": "1000"}
    done = subprocess.run(
        [sys.executable, *module, *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _case(name: str, arguments: argparse.Namespace) -> Case:
    return (TINY if arguments.tiny else CASES)[name]


if __name__ == "__main__":
    main()
