"""Something odd in a file's place is named: every file of a run and of its dataset, every odd
kind, every command that reads them.

    python -m benchmarks.odd_files
    python -m benchmarks.odd_files --kind pipe "bit flip" --command verify

Each case is a fresh copy of a small dataset and of a training on it that was stopped. One of the
files is replaced, and one command runs in a process of its own. It must refuse with one message
that names the file, or answer as it does where all is whole, if that is what the kind allows; a
process that takes longer than `--timeout` seconds is killed. What a link leads to may not change.
Prints a JSON line for each case that went wrong and one with the counts by command; ends with
status 1 where one went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pyarrow.dataset
import torch

import foretaste
import foretaste.cli.evaluate
import foretaste.cli.recommend
import foretaste.cli.runs
import foretaste.cli.train
import foretaste.evaluation.evaluator
import foretaste.recommend.recommender
import foretaste.training.verbs
from foretaste.cli.app import main as run_command_line
from foretaste.training import Callback

FIRST_USE_IMPORTS = (pyarrow.dataset,)
"""Modules that reading Parquet imports, too late for forks to share."""

GOOD = "good"
"""Beside run and dataset: the file as it was."""

STATE, LOCK = "run/resume.safetensors", "run/training.lock"
FILES = [
    *("run/config.json", "run/metrics.jsonl", "run/best.safetensors", STATE, LOCK),
    *("run/users.parquet", "run/items.parquet", "run/histories.parquet"),
    *("data/manifest.json", "data/users.parquet", "data/items.parquet"),
    *("data/train.parquet", "data/validation.parquet", "data/test.parquet"),
]
COMMANDS = {
    "verify": "verify run data",
    "recommend": "recommend run --user 1 --format csv",
    "evaluate": "evaluate run --dataset data --format csv",
    "resume": "train --resume run --dataset data",
}


def make_socket(path: Path) -> None:
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def good(path: Path) -> Path:
    return path.parent.with_name(GOOD)


def flip_bit(path: Path) -> None:
    content = bytearray(good(path).read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    content = good(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])


def lengthen(path: Path) -> None:
    """By a terabyte, of which none is on the disk."""
    shutil.copy(good(path), path)
    os.truncate(path, 1 << 40)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": Path.touch,
    "directory": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": make_socket,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "dangling link": lambda path: path.symlink_to("nothing"),
    "link loop": lambda path: path.symlink_to(path.name),
    "link to the file": lambda path: path.symlink_to(good(path)),
    "huge and sparse": lengthen,
    "truncated": truncate,
    "bit flip": flip_bit,
}


class StopError(Exception):
    """Ends a training as a kill does."""


class Stopping(Callback):
    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        if epoch == 3:
            raise StopError


@dataclass(frozen=True)
class Outcome:
    """Outcome of a command."""

    status: int | None
    """None where it was killed for its slowness."""
    out: str
    err: str
    weights: bytes | None
    """The run's, afterwards."""

    @property
    def is_refusal(self) -> bool:
        return self.status == 2 and self.err.count("error: ") == 1 and "Traceback" not in self.err

    def is_as(self, whole: Outcome, command: str) -> bool:
        """True where the command answered as it does where all is whole."""
        same = self.weights == whole.weights if command == "resume" else self.out == whole.out
        return self.status == 0 and same


def make_original(root: Path) -> None:
    """A small dataset, and a run whose training was stopped in its third epoch."""
    shape = foretaste.data.GenerateConfig(num_users=60, num_items=40, num_interactions=900)
    config = foretaste.PrepareConfig(protocol="leave-one-out")
    foretaste.prepare(foretaste.data.generate(shape).table, root / "data", config)
    with suppress(StopError):
        foretaste.train(
            "gmf",
            root / "data",
            model_config=foretaste.GMFConfig(factors=4),
            config=foretaste.TrainingConfig(epochs=4, batch_size=1000, checkpoint_every_s=0.0),
            run=root / "run",
            progress=Stopping(),
        )
    (root / LOCK).write_text("process 1 on a host of old")


def outcome(command: str, directory: Path, timeout_s: float) -> Outcome:
    """Run a command in a fork, within a directory."""
    said = [directory / "out", directory / "err"]
    pid = os.fork()
    if pid == 0:
        os._exit(_status_of(COMMANDS[command], directory, said))
    end = time.monotonic() + timeout_s
    status = None
    while status is None and time.monotonic() < end:
        done, code = os.waitpid(pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if done else None
        time.sleep(0.01)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    weights = directory / "run" / "best.safetensors"
    content = weights.read_bytes() if weights.is_file() and status == 0 else None
    out, err = (path.read_text(errors="replace") for path in said)
    return Outcome(status, out, err, content)


def _status_of(line: str, directory: Path, said: list[Path]) -> int:
    torch.set_num_threads(1)
    os.chdir(directory)
    for number, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    try:
        run_command_line(line.split())
    except SystemExit as exit:
        return int(exit.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def may_pass_for_whole(file: str, kind: str) -> bool:
    """True where nothing is wrong: a lock may hold anything, and a state need not be there."""
    if file == LOCK:
        return kind in ("missing", "empty", "huge and sparse", "truncated", "bit flip")
    return kind == "link to the file" or (file, kind) == (STATE, "missing")


def is_right(file: str, kind: str, command: str, found: Outcome, whole: Outcome) -> bool:
    if command == "verify":
        return found.status == 0 if may_pass_for_whole(file, kind) else found.is_refusal
    if may_pass_for_whole(file, kind):
        return found.is_as(whole, command)
    # Not every command reads every file.
    return found.is_refusal or found.is_as(whole, command)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--file", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--command", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--timeout", type=float, default=60.0)
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {command: Counter() for command in options.command}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        make = os.fork()
        if make == 0:
            make_original(root / "original")
            os._exit(0)
        os.waitpid(make, 0)
        whole = {}
        for command in options.command:
            directory = shutil.copytree(root / "original", root / "case")
            whole[command] = outcome(command, directory, options.timeout)
            assert whole[command].status == 0, (command, whole[command].err)
            shutil.rmtree(directory)
        for file, kind, command in product(options.file, options.kind, options.command):
            directory = shutil.copytree(root / "original", root / "case")
            path = directory / file
            path.rename(good(path))
            before = good(path).read_bytes()
            KINDS[kind](path)
            found = outcome(command, directory, options.timeout)
            is_untouched = good(path).read_bytes() == before
            right = is_untouched and is_right(file, kind, command, found, whole[command])
            how = "refused" if found.is_refusal else "answered" if found.status == 0 else "failed"
            counts[command][how if right else "wrong"] += 1
            if not right:
                said = {"status": found.status, "out": found.out[-300:], "err": found.err[-600:]}
                case = {"file": file, "kind": kind, "command": command}
                print(json.dumps({**case, "untouched": is_untouched, **said}), flush=True)
            shutil.rmtree(directory)
    print(json.dumps(counts))
    return 1 if any(count["wrong"] for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
