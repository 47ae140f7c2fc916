"""Files that one process at a time may hold. It is the system that locks, not a file's being there,
so what a dead process left behind keeps nobody out. A file system that knows no locks lets
everybody in."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import msvcrt
    import os

    _BEYOND_CONTENT = 1 << 30
    """What is locked there cannot be read, and a lock's file says who holds it."""

    def try_lock(descriptor: int) -> bool:
        """Whether an open file is this process's until it is closed, or nobody can lock it."""
        os.lseek(descriptor, _BEYOND_CONTENT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        except OSError:
            return True
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Whether an open file is this process's until it is closed, or nobody can lock it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True
