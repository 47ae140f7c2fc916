"""Files are opened only where they are regular files, and held by one process at a time."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import foretaste._util.files
from foretaste._util.files import (
    MAX_DOCUMENT_MIB,
    file_sha256,
    has_content,
    open_own,
    open_regular,
    read_document,
    try_lock,
)

READERS = [read_document, file_sha256, lambda path: has_content(path, 1, ""), open_regular]
DEVICE = Path("/dev/zero")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


ODD = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a directory": Path.mkdir,
    "a device": lambda path: path.symlink_to(DEVICE),
}


@pytest.fixture(autouse=True)
def in_a_short_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of sockets are short."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_is_not_waited_for(kind: str, reader: Callable[[Path], Any]) -> None:
    path = Path("odd")
    make: Callable[[Path], object] = ODD[kind]
    make(path)
    with pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
        reader(path)


@pytest.mark.parametrize("reader", READERS)
def test_links_that_lead_nowhere(reader: Callable[[Path], Any]) -> None:
    Path("dangling").symlink_to("nothing")
    Path("loop").symlink_to("loop")
    for name in ("dangling", "loop"):
        with pytest.raises(OSError, match=r"No such file|Too many levels"):
            reader(Path(name))


def test_a_link_to_a_file_is_read_and_not_written() -> None:
    Path("file").write_bytes("Amélie\r\n".encode())
    Path("link").symlink_to("file")
    assert read_document(Path("link")) == "Amélie\r\n"
    assert file_sha256(Path("link")) == hashlib.sha256(Path("file").read_bytes()).hexdigest()
    for mode in ("rb", "r+b", "a+b", "wb", "xb"):
        with pytest.raises(OSError, match="it is a link, not a regular file"):
            open_own(Path("link"), mode)
    with open_own(Path("file"), "a+b") as file:
        file.write(b"more")
    assert Path("file").read_bytes().endswith(b"more")


def test_a_pipe_that_takes_a_file_s_place_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("text")
    status = Path("file").stat()
    os.mkfifo("pipe")
    monkeypatch.setattr(os, "stat", lambda path, **_: status)
    with pytest.raises(OSError, match="it is a pipe"):
        open_regular(Path("pipe"))


def test_a_long_file_is_no_document() -> None:
    path = Path("long")
    path.touch()
    os.truncate(path, MAX_DOCUMENT_MIB << 20)
    assert len(read_document(path)) == MAX_DOCUMENT_MIB << 20
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match=f"it is longer than {MAX_DOCUMENT_MIB} MiB"):
        read_document(path)
    assert not has_content(path, 5, "")


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
    module = loaded_anew(str(foretaste._util.files.__file__))
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
