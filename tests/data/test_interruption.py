"""Ctrl-C or a closed terminal at any step of a preparation leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import foretaste as package
from foretaste.data import prepare

STEPS = ["checksum", "read", "filter", "collapse repeats", "split", "number", "write"]


def shop(num_rows: int) -> pa.Table:
    rng = np.random.default_rng(5)
    columns = {"user_id": num_rows // 50, "item_id": 500, "timestamp": 10**9}
    return pa.table({name: rng.integers(bound, size=num_rows) for name, bound in columns.items()})


def has_open(process: int, path: Path) -> bool:
    """True if a process has a file open."""
    descriptors = list(Path(f"/proc/{process}/fd").iterdir())
    with suppress(FileNotFoundError):  # a file that was closed in between
        return any(one.readlink() == path for one in descriptors)
    return False


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_between_steps_leaves_nothing(tmp_path: Path, step: str) -> None:
    def interrupt(begun: str) -> None:
        if begun == step:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        prepare(shop(2_000), tmp_path / "sets" / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the open file in /proc")
def test_an_interrupt_within_a_step_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "ratings.csv"
    pa_csv.write_csv(shop(3_000_000), source)
    command = [sys.executable, "-m", "foretaste", "prepare", str(source), "-o", "sets/out"]
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    # In the middle of the read, which takes a second: the file is open, and the output begun.
    while not (list(tmp_path.glob("sets/.*")) and has_open(running.pid, source)):
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGHUP)
    _, message = running.communicate(timeout=60)
    assert (running.returncode, message) == (128 + signal.SIGHUP, "interrupted\n")
    assert list(tmp_path.iterdir()) == [source]
