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
    """Yield a temporary sibling of ``path``, an empty file, to write to.

    It gets the permissions of any new file, even from a writer that replaces it by a private one.
    Leaving the block flushes it to disk and renames it onto ``path``; an exception removes it and
    leaves ``path`` as it was.
    """
    temporary = _temporary_sibling(path)
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling directory that becomes ``path``, which must not exist.

    An exception removes what was written. Raises FileExistsError when ``path`` is there, or when
    someone else made it meanwhile.
    """
    if path.exists():
        raise FileExistsError(path)
    temporary = _temporary_sibling(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            _flush(file)
        _rename_to_new(temporary, path)
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_sibling(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(4)}.tmp.{path.name}")


def _rename_to_new(temporary: Path, path: Path) -> None:
    try:
        temporary.rename(path)
    except OSError as error:
        if path.exists():
            raise FileExistsError(path) from error
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
