"""Time to quality: seconds from a prepared dataset to the end of ``foretaste train``.

    python -m benchmarks.leaderboard --data FOLDER --datasets lastfm steam --beside OTHER_CHECKOUT

FOLDER holds prepared datasets by name. Each run is the command that a user gives, in a process of
its own, start-up and every evaluation included, with the default settings. With ``--beside`` the
other checkout, which must write runs of the same format, takes its turn before each of ours, and
the quality of both runs is compared on the same test users by this checkout. ``--beside .
--beside-options "--learning-rate-schedule constant"`` compares settings of one checkout. The last
line names what moved. If other programs run, compare CPU seconds with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import foretaste
from benchmarks.show import summary
from foretaste._util.terminal import exit_with_status
from foretaste.bench.rows import COMMIT_VARIABLE, OURS, Row, environment
from foretaste.errors import SettingError
from foretaste.evaluation.config import default_metric
from foretaste.measure.evaluate_runs import compare_runs
from foretaste.models.registry import config_class
from foretaste.runs.run import Run

DATASETS = ("lastfm", "steam", "ml-1m")
MODELS = (
    *("popularity", "ease", "slist", "itemknn", "rp3beta", "ials"),
    *("vae", "dae", "recvae", "neumf", "mlp", "gmf"),
)
SHARE = 0.98
"""Share of a run's best validation value that counts as nearly its whole quality."""
MOVED = 0.1
"""Share by which the CPU seconds of two checkouts must differ, with every seed, to be named."""

_CLOCK = "foretaste train, from the start of its process to the end"
_PARENT = "beside"
COPIED_BYTES = 1 << 28


def main(tokens: Sequence[str] | None = None) -> None:
    """Measure every case one by one; a mistake exits with status 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaderboard")
    parser.add_argument("--data", type=Path, required=True, help="folder of prepared datasets")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--beside", type=Path, help="another checkout, trained alternately")
    parser.add_argument("--beside-options", type=shlex.split, default=[], help="of its trainings")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="file of JSON lines; rows are appended")
    with exit_with_status():
        measure(parser.parse_args(tokens))


def measure(given: argparse.Namespace) -> None:
    """Train every model on every dataset; write and print a row for each run."""
    torch.set_num_threads(given.threads)
    here = Path(foretaste.__file__).parents[2]
    sides: dict[str, tuple[Path, list[str]]] = {}
    if given.beside:
        sides[_PARENT] = given.beside.resolve(), given.beside_options
    sides[OURS] = here, []
    environments = {side: _environment(checkout) for side, (checkout, _) in sides.items()}
    rows: list[Row] = []
    for dataset in given.datasets:
        for model in given.models:
            for seed in given.seeds:
                case = {"dataset": dataset, "seed": seed, "threads": given.threads}
                if given.beside and given.beside_options:
                    case["beside_options"] = shlex.join(given.beside_options)
                data = given.data / dataset
                for row in _turn(sides, model, data, case):
                    rows.append(row)
                    print(summary([row]).to_markdown().splitlines()[-1], flush=True)
                    if given.output:
                        document = asdict(row) | environments[row.side]
                        with given.output.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(document, allow_nan=False) + "\n")
    print(f"\n{summary(rows).to_markdown()}")
    if given.beside:
        print(f"\nMoved: {'; '.join(moved(rows)) or 'nothing'}")


def moved(rows: Sequence[Row]) -> list[str]:
    """Differences whose interval excludes 0, and CPU seconds that every seed finds changed."""
    found = []
    times: dict[str, list[float]] = {}
    for row in rows:
        if "difference" in row.measured:
            name = f"{row.model} on {row.case['dataset']}"
            value, low, high = row.measured["difference"]
            if low > 0 or high < 0:
                interval = f"{value:+.4f} ({low:+.4f} to {high:+.4f})"
                found.append(
                    f"{name}, seed {row.case['seed']}: {row.measured['metric']} {interval}"
                )
            times.setdefault(name, []).append(row.measured["times_cpu_s"])
    for name, values in times.items():
        if min(values) > 1 + MOVED or max(values) < 1 - MOVED:
            found.append(
                f"{name}: {_PARENT} took {min(values):.2f} to {max(values):.2f} times our CPU time"
            )
    return found


def _environment(checkout: Path) -> dict[str, Any]:
    """Commit of a checkout, versions, host and its bandwidth in GB/s."""
    found = environment(torch.device("cpu"))
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    found["commit"] = done.stdout.strip() or os.environ.get(COMMIT_VARIABLE)
    found["hardware"]["copy_gb_per_s"] = copy_gb_per_s()
    return found


def copy_gb_per_s() -> float:
    """Bytes read and written in a second by copying 256 MiB, the best of five times, in GB."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        since = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - since)
    return 2e-9 * COPIED_BYTES / min(seconds)


def _turn(
    sides: Mapping[str, tuple[Path, Sequence[str]]], model: str, data: Path, case: dict[str, Any]
) -> Iterator[Row]:
    """Measure a row for each side's run; our row has the difference to the other side."""
    with tempfile.TemporaryDirectory() as folder:
        measured: dict[str, dict[str, Any]] = {}
        for side, (checkout, options) in sides.items():
            asked = [model, str(data), *options]
            if config_class(model).has_epochs:  # the others draw nothing, and have no seed
                asked += ["--seed", str(case["seed"])]
            measured[side] = train(checkout, asked, Path(folder, side), case["threads"])
        if _PARENT in measured:
            paths = [Path(folder, side) for side in (_PARENT, OURS)]
            metric = measured[OURS]["metric"]
            (differences,) = compare_runs(paths, dataset=data, device="cpu").differences.values()
            found = differences[metric]
            measured[OURS] |= {"difference": [found.value, found.low, found.high]}
            measured[OURS] |= {
                f"times_{name}": measured[_PARENT][name] / measured[OURS][name]
                for name in ("elapsed_s", "cpu_s")
            }
    for side, numbers in measured.items():
        yield Row(
            benchmark="leaderboard",
            model=model,
            side=side,
            case=case,
            clock=_CLOCK,
            measured=numbers,
        )


def train(checkout: Path, asked: Sequence[str], run: Path, threads: int) -> dict[str, Any]:
    """Run one command with the sources of a checkout; return seconds, epochs and quality.

    ``asked`` are its model, dataset and options, without ``--run``.
    """
    command = [sys.executable, "-m", "foretaste", "train", *asked, "--run", str(run)]
    command += ["--quiet", "--device", "cpu"]
    more = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": str(threads)}
    before, since, began = os.times(), time.perf_counter(), time.time()
    done = subprocess.run(command, env=os.environ | more, stdout=subprocess.DEVNULL)
    elapsed_s, after = time.perf_counter() - since, os.times()
    if done.returncode:
        raise SettingError(f"{' '.join(command)} in {checkout} failed; what it said is above")
    cpu_s = sum(getattr(after, name) - getattr(before, name) for name in _CHILDREN)
    return measured(run, began, elapsed_s, cpu_s)


def measured(run: Path, began: float, elapsed_s: float, cpu_s: float) -> dict[str, Any]:
    """The cells of a row about a finished run; ``began`` is the clock's time when its command
    started."""
    opened = Run.open(run)
    final, of_run, history = opened.metrics, opened.log.summary, opened.log.read()
    assert final is not None
    assert of_run is not None
    # A model that is fitted in one pass chooses no epoch.
    metric = opened.config.resolved.get("select_by") or default_metric(final.protocol)
    values = [
        (event["time"], event["evaluation"]["metrics"][metric]["value"])
        for event in history
        if event["event"] == "evaluation" and event["evaluation"]["split"] == "validation"
    ]
    enough = SHARE * max((value for _, value in values), default=0.0)
    # A model that is fitted in one pass has no evaluation on the way: its quality exists at its
    # end.
    reached = next((at for at, value in values if value >= enough), None)
    to_98_s = datetime.fromisoformat(reached).timestamp() - began if reached else elapsed_s
    return {
        "elapsed_s": elapsed_s,
        "cpu_s": cpu_s,
        "to_98_s": to_98_s,
        "epochs": sum(event["event"] == "epoch" for event in history),
        "best_epoch": of_run.get("best_epoch"),
        "metric": metric,
        "quality": final[metric],
        "metrics": {
            name: [each.value, each.low, each.high] for name, each in final.metrics.items()
        },
        "peak_memory_mib": of_run["memory_mib"],
    }


_CHILDREN = ("children_user", "children_system")

if __name__ == "__main__":
    main()
