"""System calls that fail, or kill the process before they start, at the four places that write.

    python -m benchmarks.failing_calls --output rows.jsonl

Each writer (a dataset's directory, the weights, a saved training state, the store of events) runs
once for each of its calls that change the disk. strace has the n-th call of a kind fail with ENOSPC
or EIO, or kills the process before it. A kill after a call is the one before the next. Then the
files must equal the files before or after the call, nothing acknowledged may be missing, and the
same command must succeed. A line of JSON is appended for each; an interrupted series continues
after the existing lines.

The n-th call is counted for each thread, as strace does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foretaste.data import open_dataset
from foretaste.runs import Run, verify

WRITES = ("write", "writev", "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate")
NAMES = ("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir")
FAULTS = ("error=ENOSPC", "error=EIO", "signal=KILL")
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
LIMIT_S = 120.0
NUM_EVENTS = 8
STORE = f"""
import os
from pathlib import Path
from foretaste.serve.events import Event, EventStore
store = EventStore("events.db")
store.create()
store.start()
with Path("acknowledged").open("ab", buffering=0) as acknowledged:
    for number in range({NUM_EVENTS}):
        store.add([Event(f"event {{number}}", "ana", str(number), 0.0)]).result(30)
        acknowledged.write(f"event {{number}}\\n".encode())
    store.withdraw(["event 0"]).result(30)
    acknowledged.write(b"withdrawn\\n")
store.close()
"""


@dataclass(frozen=True)
class Writer:
    """A command that writes, the preparation of its directory, and the state of its files
    afterwards."""

    command: list[str]
    state: Callable[[], object]
    """Returns the state that a reader finds; raises if the files are damaged."""
    prepare: tuple[list[str], ...] = ()


def foretaste(line: str) -> list[str]:
    return ["-m", "foretaste", *line.split()]


def content_of_dataset() -> object:
    dataset = open_dataset("data")
    dataset.check()
    return dataset.manifest.digest


def weights_of_run() -> object:
    """The digest of the weights; None if the training has not ended."""
    if not Path("run/config.json").exists():
        return None
    problems = verify("run")
    assert not problems, problems
    if not Run.open(Path("run")).is_finished:
        return None
    return hashlib.sha256(Path("run/best.safetensors").read_bytes()).hexdigest()


def lost_events() -> object:
    """Acknowledged changes that the store lacks: events, and the withdrawal of the first."""
    acknowledged = Path("acknowledged")
    # A line is counted once it is whole: a failing write may leave a part of it.
    lines = acknowledged.read_text().split("\n")[:-1] if acknowledged.exists() else []
    users: dict[str, str | None] = {}
    if lines:
        connection = sqlite3.connect("events.db")
        users = dict(connection.execute("SELECT event_id, user_id FROM events"))
        connection.close()
    withdrawn = {"withdrawn"} if users.get("event 0", "ana") is None else set()
    return sorted(set(lines) - set(users) - withdrawn)


PREPARE = foretaste("prepare old.csv --output data --protocol held-out-users --threads 1")
WRITERS = {
    "dataset": Writer(
        foretaste(
            "prepare new.csv --output data --protocol held-out-users --threads 1 --overwrite"
        ),
        content_of_dataset,
        (PREPARE,),
    ),
    "weights": Writer(
        foretaste("train ease data --l2 2 --run run --overwrite --device cpu"),
        weights_of_run,
        (PREPARE, foretaste("train ease data --l2 1 --run run --device cpu")),
    ),
    "state": Writer(
        foretaste(
            "train vae data --hidden 8 --latent 4 --epochs 2 --batch-size 100 --run run "
            "--checkpoint-every-s 0.001 --device cpu"
        ),
        weights_of_run,
        (PREPARE,),
    ),
    "events": Writer(["-c", STORE], lost_events),
}


def run(command: list[str], *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, *command],
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def traced(*options: str) -> list[str]:
    return ["strace", "-f", "-qq", "--seccomp-bpf", *options]


def num_calls(writer: Writer) -> dict[str, int]:
    """For each call, the largest number of it that a thread makes."""
    done = run(writer.command, *traced("-o", "trace", "-e", f"trace={','.join((*WRITES, *NAMES))}"))
    assert done.returncode == 0, done.stderr
    lines = Path("trace").read_text(errors="replace").splitlines()
    found = Counter(
        match.groups() for line in lines if (match := re.match(r"(\d+) +(\w+)\(", line))
    )
    return {
        name: max(count for (_, one), count in found.items() if one == name)
        for name in {name for _, name in found}
    }


def faults(calls: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    for call in (*WRITES, *NAMES):
        for fault in FAULTS:
            for number in range(1, calls.get(call, 0) + 1):
                yield call, fault, number


def outcome(writer: Writer, allowed: set[object], call: str, fault: str, number: int) -> str:
    """``kept`` if nothing was lost, otherwise the loss in words."""
    inject = f"inject={call}:{fault}:when={number}"
    try:
        run(writer.command, *traced("-o", "/dev/null", "-e", f"trace={call}", "-e", inject))
    except subprocess.TimeoutExpired:
        return "hung"
    try:
        found = writer.state()
    except Exception as error:
        return f"damaged: {error}"
    if str(found) not in allowed:
        return f"neither the old nor the new: {found}"
    return "kept"


def series(name: str, writer: Writer, output: Path, limit: int | None) -> None:
    done = {
        (row["writer"], row["call"], row["fault"], row["number"])
        for row in map(json.loads, output.read_text().splitlines() if output.exists() else [])
    }
    with tempfile.TemporaryDirectory() as folder:
        template, copy = Path(folder, "template"), Path(folder, "copy")
        template.mkdir()
        os.chdir(template)
        for path, num_users in (("old.csv", 60), ("new.csv", 80)):
            pairs = (
                (user, (user * step + step) % 37) for user in range(num_users) for step in range(12)
            )
            text = "".join(f"{user},{item}\n" for user, item in pairs)
            Path(path).write_text("user_id,item_id\n" + text)
        for command in writer.prepare:
            prepared = run(command)
            assert prepared.returncode == 0, prepared.stderr

        def fresh() -> None:
            os.chdir(folder)
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(template, copy)
            os.chdir(copy)

        fresh()
        before = writer.state()
        calls = num_calls(writer)
        after = str(writer.state())
        print(f"{name}: {calls}", flush=True)
        for call, fault, number in list(faults(calls))[:limit]:
            if (name, call, fault, number) in done:
                continue
            fresh()
            result = outcome(writer, {str(before), after}, call, fault, number)
            # A fault after the last step leaves nothing to do again.
            if result == "kept" and str(writer.state()) != after:
                again = run(writer.command)
                if again.returncode or str(writer.state()) != after:
                    result = f"not mended by the same command: {again.stderr[-300:]}"
            row = {"writer": name, "call": call, "fault": fault, "number": number, "result": result}
            with output.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            if result != "kept":
                print(json.dumps(row), flush=True)
        os.chdir("/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--writers", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--limit", type=int, help="at most so many faults of each writer")
    options = parser.parse_args()
    output = options.output.absolute()
    for name in options.writers:
        series(name, WRITERS[name], output, options.limit)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    for name, count in sorted(
        Counter((row["writer"], row["result"] == "kept") for row in rows).items()
    ):
        print(f"{name[0]}: {count} {'kept' if name[1] else 'LOST'}")


if __name__ == "__main__":
    main()
