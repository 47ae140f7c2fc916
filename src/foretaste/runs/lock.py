"""Lock of a run: one process at a time may train into it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import IO

from foretaste._util.files import open_own, try_lock
from foretaste.errors import RunError
from foretaste.runs.paths import writing

LOCK = "training.lock"

_NUM_TRIES, _PAUSE_S = 5, 0.01
"""A process that asks for the holder has the lock for a moment."""


@contextmanager
def training_lock(run_path: Path) -> Iterator[None]:
    """Keep other processes from training into a run while the block runs; RunError names them.

    The file is gone afterwards, but on Windows, where what is open cannot be removed. A file system
    that knows no locks lets everybody in.
    """
    path = run_path / LOCK
    with writing(path):
        file = _acquired(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        file.close()


def lock_holder(run_path: Path) -> str | None:
    """The process that trains into a run, as ``process 123 on host``; None where none does."""
    try:
        with open_own(run_path / LOCK, "rb") as file:
            return None if try_lock(file.fileno()) else _named_in(file)
    except OSError:
        return None


def _acquired(path: Path) -> IO[bytes]:
    """The lock file, open, with the lock on it."""
    while True:
        file = open_own(path, "a+b")
        try:
            for _ in range(_NUM_TRIES):
                if try_lock(file.fileno()):
                    break
                time.sleep(_PAUSE_S)
            else:
                raise RunError(
                    f"{path.parent} is being trained by {_named_in(file)}; wait for it or stop it "
                    "first"
                )
            if _is_the_only(file, path):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {gethostname()}".encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _is_the_only(file: IO[bytes], path: Path) -> bool:
    """True for an open file at ``path`` and nowhere else; elsewhere it is not ours to write."""
    status = os.fstat(file.fileno())
    # Whoever held the lock before may have removed the file before it was locked again.
    with suppress(FileNotFoundError):
        if os.path.samestat(status, path.lstat()):
            if status.st_nlink == 1:
                return True
            path.unlink()
    return False


def _named_in(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(1000).decode(errors="replace") or "another process"
