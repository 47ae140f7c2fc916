"""Files of a directory that may come from elsewhere: opened only where they are regular, and held
by one process at a time.

A pipe is not waited for, a device not read, and nothing is written through a link.

The system holds the locks, so a file that a dead process left behind keeps nobody out.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from foretaste._util.system import NO_LINK, try_lock
from foretaste.errors import SettingError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_name_text(path: Path) -> bool:
    """True for a path that is UTF-8 text without a NUL character: other libraries take no other."""
    try:
        return b"\0" not in str(path).encode()
    except UnicodeEncodeError:
        return False


def real_path(path: Path | str) -> str:
    """The path from the root: neither DuckDB nor Arrow takes a part of it for a home folder or a
    protocol, as they do with ``~/a.csv`` and ``file:/a.csv``."""
    return os.path.realpath(path)


def followed(path: Path) -> Path:
    """The path from the root that links lead to; OSError where they lead in a circle."""
    with suppress(FileNotFoundError):
        path.stat()  # Path.resolve raises a RuntimeError, or nothing, by the version of Python
    return Path(os.path.realpath(path))


def why_not_written(error: OSError, elsewhere: str) -> str:
    """The message about a path that cannot be written; ``elsewhere`` says how to choose another."""
    advice = f"make room, or {elsewhere}" if error.errno in _NO_ROOM else elsewhere
    return f"cannot be written: {error.strerror or error}; {advice}"


def open_regular(path: Path) -> BufferedReader:
    """Open for reading a regular file, or the one that a link leads to."""
    _check_is_regular(path)
    return path.open("rb")


def open_own(path: Path, mode: str) -> IO[bytes]:
    """Open in a binary mode a regular file that is no link."""
    if path.is_symlink():
        raise OSError(errno.EINVAL, "it is a link, not a regular file", str(path))
    _check_is_regular(path)
    file: IO[bytes] = path.open(mode)
    return file


def read_document(path: Path) -> str:
    """The UTF-8 text of a regular file, every line end as it is."""
    with open_regular(path) as file:
        return file.read().decode()


def cache_directory() -> Path:
    """The folder of files kept for later: ``foretaste`` in ``XDG_CACHE_HOME``, ``~/.cache`` unless
    set."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "foretaste"
    try:
        return Path.home() / ".cache" / "foretaste"
    except RuntimeError:
        raise SettingError(
            "there is no home directory to keep files in; name one in XDG_CACHE_HOME"
        ) from None


def file_sha256(path: Path) -> str:
    """The sha256 of a regular file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_is_regular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def locked_file(path: Path, *, without_locks: bool) -> int | None:
    """A descriptor of the file at ``path``, made if need be, that is this process's until closed.

    None where another process has it, or removed the directory or the file before it was locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        if try_lock(descriptor, without_locks=without_locks) and os.path.samestat(
            os.fstat(descriptor), path.lstat()
        ):
            return descriptor
    os.close(descriptor)
    return None
