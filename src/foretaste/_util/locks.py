"""Files that one process at a time may hold. It is the system that locks, not a file's being there,
so what a dead process left behind keeps nobody out."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    _BEYOND_CONTENT = 1 << 30
    """What is locked there cannot be read, and a lock's file says who holds it."""

    def try_lock(descriptor: int, *, without_locks: bool = True) -> bool:
        """Whether an open file is this process's until it is closed.

        ``without_locks`` is the answer where the file system knows no locks.
        """
        os.lseek(descriptor, _BEYOND_CONTENT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        except OSError:
            return without_locks
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
else:
    import fcntl

    def try_lock(descriptor: int, *, without_locks: bool = True) -> bool:
        """Whether an open file is this process's until it is closed.

        ``without_locks`` is the answer where the file system knows no locks.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return without_locks
        return True


def locked_file(path: Path, *, without_locks: bool) -> int | None:
    """A descriptor of the file at ``path``, made if need be, that is this process's until closed.

    None where another process has it, or removed the directory or the file before it was locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileNotFoundError:
        return None
    is_ours = False
    with suppress(FileNotFoundError):
        is_ours = try_lock(descriptor, without_locks=without_locks) and os.path.samestat(
            os.fstat(descriptor), path.lstat()
        )
    if not is_ours:
        os.close(descriptor)
    return descriptor if is_ours else None
