"""Files of a directory that may come from elsewhere: safe opening, and locks.

Only regular files are opened: a pipe is not waited for, a device not read, and nothing is written
through a link. The system holds the locks, so the lock file of a dead process blocks nobody.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO

from foretaste._util.system import NO_LINK, NO_WAIT, try_lock
from foretaste.errors import SettingError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, quota or file."""

SMALL_BYTES = 1 << 20
"""Most bytes of a file of rules or with a token, and those in which a file shows what it is."""


def is_name_text(path: Path) -> bool:
    """True for a path that is UTF-8 text without a NUL character; other libraries need that."""
    try:
        return b"\0" not in str(path).encode()
    except UnicodeEncodeError:
        return False


def real_path(path: Path | str) -> str:
    """The absolute path, for DuckDB and Arrow."""
    # They take parts of relative paths for a home folder or a protocol: ``~/a.csv``, ``file:/a``.
    return os.path.realpath(path)


def followed(path: Path) -> Path:
    """The absolute path without links; OSError for links in a circle."""
    with suppress(FileNotFoundError):
        # `stat` raises the OSError of a circle. `Path.resolve` raises RuntimeError or nothing, by
        # the version of Python.
        path.stat()
    return Path(os.path.realpath(path))


def without_links(path: Path) -> Path:
    """The place to which a path leads now: absolute if the path has links, itself otherwise."""
    real = os.path.realpath(path)
    return path if real == os.path.abspath(path) else Path(real)  # noqa: PTH100


def why_not_written(error: OSError, elsewhere: str) -> str:
    """The message about a path that cannot be written; ``elsewhere`` is the advice for another."""
    advice = f"make room, or {elsewhere}" if error.errno in NO_ROOM else elsewhere
    return f"cannot be written: {error.strerror or error}; {advice}"


def open_regular(path: Path) -> BufferedReader:
    """Open for reading a regular file, or a link to one."""
    return open(path, "rb", opener=_regular)


def open_own(path: Path, mode: str) -> IO[bytes]:
    """Open in a binary mode a regular file that is no link."""
    if path.is_symlink():
        raise OSError(errno.EINVAL, "it is a link, not a regular file", str(path))
    # A link that is made now is refused with the system's words.
    own = partial(_regular, more_flags=NO_LINK)
    file: IO[bytes] = open(path, mode, opener=own)  # noqa: SIM115 (the caller closes it)
    return file


def read_document(path: Path) -> str:
    """The UTF-8 text of a regular file, with its line ends unchanged."""
    with open_regular(path) as file:
        return file.read().decode()


def read_small(path: Path) -> bytes:
    """The bytes of a regular file, which has at most `SMALL_BYTES`."""
    with open_regular(path) as file:
        content = file.read(SMALL_BYTES + 1)
    if len(content) > SMALL_BYTES:
        raise OSError(errno.EFBIG, f"it is longer than {SMALL_BYTES >> 20} MiB", str(path))
    return content


def cache_directory() -> Path:
    """The cache folder: ``foretaste`` in ``XDG_CACHE_HOME``, by default in ``~/.cache``."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "foretaste"
    try:
        return Path.home() / ".cache" / "foretaste"
    except RuntimeError:
        raise SettingError(
            "there is no home directory for cached files; name a directory in XDG_CACHE_HOME"
        ) from None


def file_sha256(path: Path) -> str:
    """The sha256 of a regular file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _regular(path: str, flags: int, more_flags: int = 0) -> int:
    """A descriptor of a regular file, for `open`."""
    # The descriptor is looked at, and not the name, which may lead elsewhere a moment later.
    with suppress(IsADirectoryError):
        descriptor = os.open(path, flags | more_flags | NO_WAIT, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def locked_file(path: Path, *, without_locks: bool) -> int | None:
    """A descriptor of the file at ``path``, created if needed and locked until it is closed.

    None if another process has the lock, or removed the file or directory before it was locked.
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
