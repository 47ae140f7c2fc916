"""What only some systems have, each with a plain answer elsewhere: locks, an exchange of names,
limits and peaks of memory, some signals, forks."""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
from collections.abc import Callable
from pathlib import Path

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Ctrl-C, the polite kill, and the terminal that is gone; Windows has no SIGHUP."""

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
"""Flag that opens no link; nothing under Windows."""

_IS_WINDOWS = sys.platform == "win32"

_NO_DIRECTORIES = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that flush files only."""

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = Path("/sys/fs/cgroup")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Of the kernel's documentation of /proc: the peak of resident memory begins anew."""


def try_lock(descriptor: int, *, without_locks: bool = True) -> bool:
    """Lock an open file until it is closed; False where another process has it.

    ``without_locks`` is the answer where the system or the file system knows no such locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return without_locks
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without_locks
    return True


def flush(path: Path) -> None:
    """Have a file or directory on the disk before going on."""
    if _IS_WINDOWS and path.is_dir():
        return
    # Windows flushes what is open for writing, and opens no directories.
    descriptor = os.open(path, os.O_RDWR if _IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in _NO_DIRECTORIES:
            raise
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths at one stroke; False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    at_cwd, both = -100, 2
    return bool(renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), both) == 0)


def after_fork_in_child(act: Callable[[], None]) -> None:
    """Have every child that is forked from now on act first, where there are forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def free_bytes() -> int:
    """Main memory that this process could still take; ``sys.maxsize`` where it is unknown.

    It is the free memory of the machine, swap included, within the limits of its control groups and
    of its own.
    """
    free = sys.maxsize
    kibibytes = _numbers(_MEMINFO) if _MEMINFO.is_file() else {}
    if "MemAvailable:" in kibibytes:
        free = 1024 * (kibibytes["MemAvailable:"] + kibibytes.get("SwapFree:", 0))
    left = [free, address_space_left()]
    for limit, used in (
        ("memory.max", "anon"),
        ("memory/memory.limit_in_bytes", "total_rss"),
    ):
        path = _CGROUPS / limit
        try:
            text = path.read_text().strip()
            taken = _numbers(path.parent / "memory.stat")[used]  # cached files can be let go
        except (OSError, KeyError):
            continue
        if text != "max":
            left.append(int(text) - taken)
    return max(0, min(left))


def address_space_left() -> int:
    """Bytes that this process may still map (``ulimit -v``), taken or not; ``sys.maxsize`` where
    there is no limit."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        return sys.maxsize
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - int(statm.read_text().split()[0]) * resource.getpagesize()


def reset_peak_of_process() -> bool:
    """Have `peak_of_process` count from here; False where the system cannot, as beside Linux."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def peak_of_process() -> int | None:
    """Bytes resident at most since the process began, or the peak was reset; None under Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_bytes(name: str) -> int:
    """A line of Linux's status of this process, such as ``VmRSS``: bytes that are resident."""
    return 1024 * _numbers(_STATUS)[f"{name}:"]


def cpu_name() -> str:
    """Name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _numbers(path: Path) -> dict[str, int]:
    """The first number of each line of a file of names and numbers, where it has one."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if words[1:] and words[1].isdecimal()}
