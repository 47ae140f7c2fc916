"""Paths of runs and of their files: free names, errors that name what fails, and a run's lock."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import IO

from foretaste._util.atomic import atomic_directory, is_empty_directory
from foretaste._util.files import is_name_text, open_own, try_lock
from foretaste.errors import RunError

CONFIG = "config.json"
METRICS = "metrics.jsonl"
LOCK = "training.lock"

_NUM_TRIES, _PAUSE_S = 5, 0.01
"""A process that asks for the holder has the lock for a moment."""


def resume_command(path: Path) -> str:
    """The command that goes on with the training of the run at ``path``."""
    return shlex.join(["foretaste", "train", "--resume", str(path)])


def check_is_new(path: Path) -> None:
    """RunError where ``path`` exists, unless it is an empty directory, or is no UTF-8 text."""
    if not is_name_text(path):
        raise RunError(f"{path} cannot be written: its name is not UTF-8 text; name another")
    if path.exists() and not is_empty_directory(path):
        raise RunError(
            f"{path} exists already, and a run is never written over without --overwrite "
            "(overwrite=True in Python); choose another directory or remove it"
        )


@contextmanager
def new_run_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to write a run to, which then becomes ``path`` at one stroke.

    Raises RunError when ``path`` exists and is not an empty directory, or cannot be written.
    """
    check_is_new(path)
    try:
        with atomic_directory(path) as temporary:
            yield temporary
    except FileExistsError:
        check_is_new(path)
        raise RunError(
            f"{path} cannot be replaced, though it is empty; name a directory in it"
        ) from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def default_run_name(model: str, dataset_name: str, now: datetime) -> str:
    """``model-dataset-time``, the name of a run that was given none."""
    return f"{model}-{dataset_name}-{now:%Y%m%d-%H%M%S}"


def unused_run_path(root: Path, name: str) -> Path:
    """``root/name``, or ``root/name-2``, ``-3``, ... where that is taken."""
    path = root / name
    number = 2
    while path.exists():
        path = root / f"{name}-{number}"
        number += 1
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """RunError where ``path`` is missing, is no regular file or cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: the run is not whole") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """RunError where ``path`` cannot be written, such as on a full disk."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


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
