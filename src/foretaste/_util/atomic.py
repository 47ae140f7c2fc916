"""Writing so that a reader finds the whole of a file or directory, or nothing."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield an empty file to write to, of the same name in a temporary sibling directory.

    What a writer keeps beside the file it writes is in there too, and goes with it. The file gets
    the permissions of any new one, even from a writer that replaces it by a private one. Leaving
    the block flushes it to disk and renames it onto ``path``; an exception removes it and leaves
    ``path`` as it was.
    """
    directory = temporary_sibling(path)
    directory.mkdir()
    try:
        temporary = directory / path.name
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        flush(temporary)
        temporary.replace(path)
        flush(path.parent)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling directory that becomes ``path``, which must not exist.

    An exception removes what was written. Raises FileExistsError when ``path`` is there, or when
    someone else made it meanwhile.
    """
    if path.exists():
        raise FileExistsError(path)
    temporary = temporary_sibling(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            flush(file)
        _rename_to_new(temporary, path)
        flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of ``path`` left beside it; nobody may be writing it now."""
    for leftover in path.parent.glob(f".*.tmp.{path.name}"):
        if leftover.is_symlink() or not leftover.is_dir():
            leftover.unlink()
        else:
            shutil.rmtree(leftover)


def temporary_sibling(path: Path, purpose: str = "tmp") -> Path:
    """A path beside ``path`` that nobody has: to write to, and to rename from."""
    return path.with_name(f".{secrets.token_hex(4)}.{purpose}.{path.name}")


def flush(path: Path) -> None:
    """Have a file or directory on the disk before going on."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no directories
    # Windows flushes only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_to_new(temporary: Path, path: Path) -> None:
    try:
        temporary.rename(path)
    except OSError as error:
        if path.exists():
            raise FileExistsError(path) from error
        raise
