"""Files of a directory that may come from elsewhere, opened only where they are regular files.

A pipe is not waited for, a device not read, a long file not taken for a document; and nothing is
written through a link. What stands in a file's place is an OSError that says what it is.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import IO

MAX_DOCUMENT_MIB = 16
"""Documents are a few KiB; a manifest that lists a thousand source files has a quarter of one."""

# Windows has neither, and opens nothing there that would be waited for.
_NOT_WAITING: int = getattr(os, "O_NONBLOCK", 0)
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def open_regular(path: Path) -> BufferedReader:
    """Open for reading a regular file, or the one that a link leads to."""
    return open(path, "rb", opener=_opened)


def open_own(path: Path, mode: str) -> IO[bytes]:
    """Open in a binary mode a regular file that is no link."""
    return open(path, mode, opener=_opened_itself)


def read_document(path: Path) -> str:
    """The UTF-8 text of a regular file, every line end as it is."""
    with open_regular(path) as file:
        content = file.read((MAX_DOCUMENT_MIB << 20) + 1)
    if len(content) > MAX_DOCUMENT_MIB << 20:
        raise OSError(errno.EFBIG, f"it is longer than {MAX_DOCUMENT_MIB} MiB", str(path))
    return content.decode()


def file_sha256(path: Path) -> str:
    """The sha256 of a regular file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_content(path: Path, num_bytes: int, sha256: str) -> bool:
    """Whether a regular file is of this length and digest; one of another length is not read."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size != num_bytes:
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _opened(path: str, flags: int) -> int:
    # Before it is opened too: a device may act on being opened, a socket only refuses.
    _check_is_regular(path, os.stat(path))  # noqa: PTH116
    return _descriptor(path, flags)


def _opened_itself(path: str, flags: int) -> int:
    if os.path.lexists(path) or not flags & os.O_CREAT:
        _check_is_regular(path, os.lstat(path))
    return _descriptor(path, flags | _NO_LINK)


def _descriptor(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | _NOT_WAITING, 0o666)
    try:
        _check_is_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_is_regular(path: str, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise OSError(
            errno.EINVAL, f"it is {_KINDS.get(kind, 'none')}, not a regular file", str(path)
        )
