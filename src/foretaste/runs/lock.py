"""One process at a time may train into a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

from foretaste._util.locks import try_lock
from foretaste.errors import RunError

LOCK = "training.lock"


@contextmanager
def training_lock(run_path: Path) -> Iterator[None]:
    """Keep other processes from training into a run while the block runs; RunError names them.

    The file is gone afterwards, but on Windows, where what is open cannot be removed. A file system
    that knows no locks lets everybody in.
    """
    path = run_path / LOCK
    try:
        descriptor = _acquired(path)
    except OSError as error:
        raise RunError(f"{run_path} cannot be written: {error}") from error
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _acquired(path: Path) -> int:
    """A descriptor of the lock file with the lock on it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, path)
            # Whoever held it before may have removed the file between the two lines above.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    os.truncate(descriptor, 0)
                    os.write(descriptor, f"process {os.getpid()} on {gethostname()}".encode())
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    if not try_lock(descriptor):
        holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
        raise RunError(f"{path.parent} is being trained by {holder}; wait for it or stop it first")
