"""Ranks killed at random moments under ``torchrun --max-restarts``, beside undisturbed ranks.

    python -m benchmarks.kill_ranks --kills 100 --output kills.jsonl

Each training runs under torchrun; after a random time a random rank is killed with SIGKILL, and a
few times torchrun's new ranks lose one too. Then the training may end, and the bytes of its weights
and every logged number that is no time are compared with a training by as many ranks without kills.
A line of JSON for each training is appended to ``--output``; an interrupted series continues after
the existing lines. A kill after which the old ranks have not all ended within 60 s counts as a
hang.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from foretaste.data import GenerateConfig, PrepareConfig, generate, prepare
from foretaste.runs import Run

SHAPE = GenerateConfig(num_users=300, num_items=200, num_interactions=9000, num_genres=4)
SETTINGS = "--patience 0 --eval-every 2 --device cpu --checkpoint-every-s 0.2"
CASES = (
    (2, "vae --hidden 64 --latent 16 --batch-size 32 --epochs 40"),
    (2, "neumf --factors 8 --layers 16 8 --batch-size 2000 --epochs 25"),
    (3, "vae --hidden 64 --latent 16 --batch-size 32 --epochs 40"),
    (3, "gmf --factors 8 --batch-size 2000 --epochs 30"),
    (2, "ease"),
    (3, "recvae --width 32 --latent 16 --batch-size 32 --epochs 12"),
)
KILLS_OF_A_TRAINING = 6
END_S = 60.0
TRAINING_S = 600.0
"""A training that takes longer, kills and all, has hung."""

TIMES = {"time", "train_s", "compile_s", "samples_per_s", "min_epoch_s", "avg_epoch_s", "target_s"}
TIMES |= {"search_s"}
TIMES |= {"evaluated_users_per_s", "evaluated_samples_per_s", "elapsed_s", "memory_mib"}
TIMES |= {"log_sha256", "config_sha256", "sha256"}
TIMES |= {"min_evaluation_s", "avg_evaluation_s"}


@dataclass
class Training:
    """A command line under torchrun, in a directory of its own."""

    size: int
    line: str
    directory: Path

    def start(self, num_restarts: int) -> subprocess.Popen[bytes]:
        """Start the training; its output goes to a file."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        model, *options = self.line.split()
        epochs = SETTINGS.split() if "--epochs" in options else []
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(self.size), "--max-restarts", str(num_restarts)]
        command += ["-m", "--", "foretaste", "train", model, "../data", *options, *epochs]
        command += ["--run", "runs/one"]
        with (self.directory / "printed").open("wb") as printed:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdout=printed,
                stderr=printed,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def found(self) -> dict[str, Any]:
        """The weights and numbers of its only run."""
        (path,) = (self.directory / "runs").glob("[!.]*")
        run = Run.open(path)
        events = [timeless(event) for event in run.log.read() if event["event"] != "resume"]
        return {
            "weights": (path / "best.safetensors").read_bytes(),
            "numbers": events,
            "is_finished": run.is_finished,
        }


def timeless(value: Any) -> Any:
    """A logged value without times."""
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in TIMES}
    return value


def ranks_of(torchrun: int) -> list[int]:
    """The processes that torchrun has started and that live."""
    try:
        children = Path(f"/proc/{torchrun}/task/{torchrun}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in children.split() if is_alive(int(child))]


def is_alive(process: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def kill_some(training: Training, whole_s: float, chance: random.Random) -> dict[str, Any]:
    """Run a training and kill ranks of it; the row to append."""
    kills: list[dict[str, Any]] = []
    started = time.monotonic()
    torchrun = training.start(KILLS_OF_A_TRAINING + 2)
    try:
        while len(kills) < KILLS_OF_A_TRAINING:
            ranks = new_ranks(torchrun, training.size, [kill["process"] for kill in kills])
            if not ranks:
                break
            delay_s = chance.uniform(0.0, 0.5 * whole_s)
            if ended_within(torchrun, delay_s):
                break
            victim = chance.choice(ranks)
            if not is_alive(victim):
                continue
            os.kill(victim, signal.SIGKILL)
            end_s = seconds_to_end(ranks)
            kills.append({"process": victim, "rank": ranks.index(victim), "delay_s": delay_s})
            kills[-1] |= {"end_s": round(end_s, 2), "hung": end_s > END_S}
        status = torchrun.wait(max(1.0, TRAINING_S - (time.monotonic() - started)))
    except subprocess.TimeoutExpired:
        status = None
    finally:
        for process in [torchrun.pid, *ranks_of(torchrun.pid)]:
            if is_alive(process):
                os.kill(process, signal.SIGKILL)
        torchrun.wait()
    return {"kills": kills, "status": status}


def new_ranks(torchrun: subprocess.Popen[bytes], size: int, killed: list[int]) -> list[int]:
    """The ranks once all have started and none is killed; empty if torchrun has ended."""
    while torchrun.poll() is None:
        ranks = ranks_of(torchrun.pid)
        if len(ranks) == size and not set(ranks) & set(killed):
            return ranks
        time.sleep(0.02)
    return []


def ended_within(torchrun: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether torchrun ends in that time."""
    try:
        torchrun.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def seconds_to_end(ranks: list[int]) -> float:
    """Seconds until all of these processes have ended; at most a little over the limit."""
    since = time.monotonic()
    while any(map(is_alive, ranks)) and time.monotonic() - since <= END_S:
        time.sleep(0.02)
    return time.monotonic() - since


def series(num_kills: int, output: Path, directory: Path, seed: int) -> None:
    """Kill until ``output`` has the wanted number of kills, then print the outcome."""
    if not (directory / "data").exists():
        prepare(generate(SHAPE).table, directory / "data", PrepareConfig(protocol="leave-one-out"))
    whole: dict[tuple[int, str], tuple[dict[str, Any], float]] = {}
    rows = read(output)
    for number, case in enumerate(cycle(CASES)):
        if sum(len(row["kills"]) for row in rows) >= num_kills:
            break
        if number < len(rows):
            continue
        if case not in whole:
            alone = Training(*case, directory / "whole")
            since = time.monotonic()
            if alone.start(0).wait(TRAINING_S):
                sys.exit(f"the training alone failed: see {alone.directory / 'printed'}")
            whole[case] = alone.found(), time.monotonic() - since
        training = Training(*case, directory / "killed")
        expected, whole_s = whole[case]
        row = {"ranks": case[0], "line": case[1]}
        row |= kill_some(training, whole_s, random.Random(f"{seed} {number}"))
        row["same"] = row["status"] == 0 and training.found() == expected
        rows.append(row)
        with output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        if not row["same"]:
            shutil.copytree(training.directory, directory / f"different-{number}")
    kills = [kill for row in rows for kill in row["kills"]]
    print(
        f"{len(rows)} trainings, {len(kills)} kills, {sum(not row['same'] for row in rows)} "
        f"different, {sum(kill['hung'] for kill in kills)} hangs; the slowest end after "
        f"{max((kill['end_s'] for kill in kills), default=0.0)} s"
    )


def read(output: Path) -> list[dict[str, Any]]:
    """The rows of an interrupted series."""
    return list(map(json.loads, output.read_text().splitlines())) if output.exists() else []


def main() -> None:
    """Run the series of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("kills.jsonl"))
    parser.add_argument("--directory", type=Path, help="a temporary one if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = (options.directory or Path(temporary)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        series(options.kills, options.output, directory, options.seed)


if __name__ == "__main__":
    main()
