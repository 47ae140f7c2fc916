"""Files are opened only where they are regular files, and held by one process at a time."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
import os, sys
sys.modules |= {"fcntl": None, "resource": None}
del os.O_NONBLOCK, os.O_NOFOLLOW
import foretaste, foretaste._util.files, foretaste._util.memory, foretaste._util.atomic
"""


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


def test_the_package_is_imported_without_what_windows_lacks() -> None:
    subprocess.run([sys.executable, "-c", AS_ON_WINDOWS], check=True)
