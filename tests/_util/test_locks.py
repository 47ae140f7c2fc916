"""Locks, and what stands in for modules that Windows does not have."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import foretaste._util.locks
from foretaste._util.locks import try_lock

AS_ON_WINDOWS = """
import sys
import cyclopts, duckdb, numpy, pyarrow.compute, pyarrow.csv, pyarrow.parquet, rich.progress
import safetensors.torch, sysconfig, torch
sysconfig.get_config_vars()  # Whatever else asks for the platform has done so.
sys.platform = "win32"
sys.modules |= {"fcntl": None, "resource": None}
taken = set()
sys.modules["msvcrt"] = type(sys)("msvcrt")
sys.modules["msvcrt"].LK_NBLCK = 2
sys.modules["msvcrt"].locking = lambda descriptor, mode, num_bytes: taken.add(descriptor)
from foretaste.cli.app import main
main(sys.argv[1:])
assert taken
"""


class Windows:
    """What `msvcrt` does to bytes of a file: one descriptor at a time has them."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.has_locks = True
        self.holder: int | None = None
        self.places: list[int] = []

    def locking(self, descriptor: int, mode: int, num_bytes: int) -> None:
        if not self.has_locks:
            raise OSError(errno.EINVAL, "Invalid argument")
        assert (mode, num_bytes) == (self.LK_NBLCK, 1)
        self.places.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if self.holder not in (None, descriptor):
            raise PermissionError(13, "Permission denied")
        self.holder = descriptor


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    system = Windows()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(**_members(system)))
    return system


def _members(system: Windows) -> dict[str, object]:
    return {"LK_NBLCK": system.LK_NBLCK, "locking": system.locking}


def loaded_anew(path: str) -> ModuleType:
    """The module in a file, as this platform has it."""
    spec = importlib.util.spec_from_file_location("loaded_anew", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("ab") as first, path.open("ab") as second:
        assert try_lock(first.fileno())
        assert not try_lock(second.fileno())
    with path.open("ab") as third:
        assert try_lock(third.fileno())


def test_a_file_system_without_locks_lets_everybody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with (tmp_path / "lock").open("ab") as file:
        assert try_lock(file.fileno())


def test_one_at_a_time_under_windows(windows: Windows, tmp_path: Path) -> None:
    """What is locked lies behind what is to be read, and reading begins where it did."""
    path = tmp_path / "lock"
    path.write_text("process 1")
    module = loaded_anew(str(foretaste._util.locks.__file__))
    with path.open("rb", buffering=0) as first, path.open("rb", buffering=0) as second:
        assert module.try_lock(first.fileno())
        assert not module.try_lock(second.fileno())
        assert second.read() == b"process 1"
    assert min(windows.places) > path.stat().st_size
    windows.has_locks = False
    with path.open("rb", buffering=0) as file:
        assert module.try_lock(file.fileno())
        assert file.read() == b"process 1"


def test_training_needs_no_module_that_windows_lacks(tmp_path: Path) -> None:
    """Peak memory is not known there, so it is left out."""
    rows = "".join(f"{n % 20},{n % 13},{n}\n" for n in range(200))
    (tmp_path / "ratings.csv").write_text("user_id,item_id,timestamp\n" + rows)
    line = "train gmf ratings.csv --factors 2 --epochs 2 --device cpu --run run"
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS, *line.split()],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Run: run" in done.stdout
    assert "memory" not in done.stdout
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "summary"
    assert last["memory_mib"] is None
