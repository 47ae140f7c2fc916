"""Trainings killed with SIGKILL at random moments, resumed until done, compared with whole ones.

``python -m tests.training.kills --kills 500`` prints a JSON line per kill and per training, and at
the end counts the places of the kills. One process imports torch; every training is a child that it
forks, so that a kill costs no start of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.dataset
import torch

import foretaste.distributed.strategy
import foretaste.models.neumf.fold_in
import foretaste.models.neumf.model
import foretaste.models.vae.recvae
from foretaste.data import GenerateConfig, PrepareConfig, generate, open_dataset, prepare
from foretaste.errors import RunError
from foretaste.runs import Run
from foretaste.runs.files import WEIGHTS
from foretaste.training import display, resume
from tests.training.trainings import numbers_of, run_of

FIRST_USE_IMPORTS = (pyarrow.dataset, display, foretaste)
"""Imports of reading Parquet, of Rich and of trainings, made here so that children share them."""

SHAPE = GenerateConfig(num_users=60, num_items=40, num_interactions=900, num_genres=4)
CASES = [("gmf", "fp32")] + [
    (name, precision)
    for precision in ("bf16", "fp32")
    for name in ("vae", "neumf", "recvae", "mlp", "dae")
]
SETTINGS: dict[str, Any] = {"epochs": 6, "checkpoint_every_s": 0.0}
BATCH_SIZES = {"vae": 15, "dae": 15, "recvae": 30}
FIRST_DELAY = 0.5
"""Share of a whole training's time that bounds the delay of a first kill: most are killed often."""
PATIENCE = 0.1
"""Share added to the delay with every kill, so that a training without progress still ends."""


@dataclass
class Campaign:
    """Kills trainings in ``directory`` until the kills suffice."""

    directory: Path
    num_kills: int
    seed: int
    hits: Counter[str] = field(default_factory=Counter)
    num_trainings: int = 0

    def run(self) -> None:
        """Print what happens; AssertionError if a training came out differently."""
        self.in_child(self.make_dataset)
        chance = random.Random(self.seed)
        whole: dict[tuple[str, str], float] = {}
        for case in cycle(CASES):
            if self.hits.total() >= self.num_kills and self.num_trainings > 1:
                break  # the first two are models of both families
            if case not in whole:
                whole[case] = self.in_child(lambda case=case: self.train(case, "whole"))
            self.kill_until_done(case, chance, whole[case])
        say(kills=self.hits.total(), trainings=self.num_trainings, hits=dict(self.hits))

    def kill_until_done(self, case: tuple[str, str], chance: random.Random, whole_s: float) -> None:
        """Kill and resume one training until it ends by itself, and compare it with the whole
        one."""
        path, kills = self.path_of(case, "killed"), []
        while True:
            longest_s = whole_s * (FIRST_DELAY + PATIENCE * len(kills))
            delay_s = chance.uniform(0.0, longest_s)
            if not self.is_killed(lambda: self.train_or_resume(case), delay_s):
                break
            kills.append(where_it_hit(path))
            self.hits[kills[-1]] += 1
            say(case=case, delay_s=round(delay_s, 4), hit=kills[-1])
        killed, expected = Run.open(path), Run.open(self.path_of(case, "whole"))
        same = {
            "weights": (killed.path / WEIGHTS).read_bytes()
            == (expected.path / WEIGHTS).read_bytes(),
            "metrics": numbers_of(killed) == numbers_of(expected),
            "files": {p.name for p in killed.path.iterdir()}
            == {p.name for p in expected.path.iterdir()},
        }
        say(case=case, num_kills=len(kills), same=same)
        assert all(same.values()), (case, kills, same)
        self.num_trainings += 1
        shutil.rmtree(path)

    def make_dataset(self) -> None:
        config = PrepareConfig(protocol="leave-one-out")
        prepare(generate(SHAPE).table, self.directory / "data", config)

    def train_or_resume(self, case: tuple[str, str]) -> None:
        path = self.path_of(case, "killed")
        if not path.exists():
            self.train(case, "killed")
            return
        try:
            resume(path)
        except RunError as error:
            if "is finished" not in str(error):
                raise

    def train(self, case: tuple[str, str], kind: str) -> None:
        name, precision = case
        settings = {"precision": precision, "batch_size": BATCH_SIZES.get(name, 1000)} | SETTINGS
        run_of(name, open_dataset(self.directory / "data"), self.path_of(case, kind), **settings)

    def path_of(self, case: tuple[str, str], kind: str) -> Path:
        return self.directory / f"{kind}-{'-'.join(case)}"

    def in_child(self, work: Callable[[], None]) -> float:
        """Do the work in a child without kills; return its seconds."""
        started = time.perf_counter()
        assert not self.is_killed(work, None)
        return time.perf_counter() - started

    def is_killed(self, work: Callable[[], None], delay_s: float | None) -> bool:
        """Whether the child was still at work after ``delay_s`` seconds, and was killed."""
        pid = os.fork()
        if pid == 0:
            os._exit(_status_of(work))
        if delay_s is not None:
            time.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return True
        assert os.WEXITSTATUS(status) == 0, "a training failed by itself"
        return False


def where_it_hit(path: Path) -> str:
    """Name the interrupted work by the files it left; remove half-made runs."""
    half_made = list(path.parent.glob(f".*.tmp.{path.name}"))
    for directory in half_made:
        shutil.rmtree(directory)
    if not path.exists():
        return "while the run was being made" if half_made else "before the run was made"
    log, state = (path / "metrics.jsonl").read_bytes(), path / "resume.safetensors"
    best = path / "best.safetensors"
    if list(path.glob(f".*.tmp.{state.name}")):
        return "while a state was being written"
    if list(path.glob(f".*.tmp.{best.name}")):
        return "while best weights were being written"
    if not log.endswith(b"\n"):
        return "within a line of the log"
    if b'"event": "summary"' in log:
        return "after the final numbers"
    if not state.exists():
        return "before the first state"
    if best.exists() and best.stat().st_mtime_ns > state.stat().st_mtime_ns:
        return "between best weights and the next state"
    return "elsewhere after the first state"


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def _status_of(work: Callable[[], None]) -> int:
    torch.set_num_threads(1)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="an empty one; a temporary one if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        Campaign(directory, options.kills, options.seed).run()


if __name__ == "__main__":
    sys.exit(main())
