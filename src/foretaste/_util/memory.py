"""Memory that is free, and errors where a request would not fit."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from foretaste._util.formatting import memory
from foretaste.errors import UnsupportedError

_SIGNS_OF_REFUSAL = (
    *("can't allocate memory", "not enough memory", "out of memory", "bad_alloc"),
    *("bad allocation", "can't start new thread", "launch worker thread", "failed to map segment"),
)
"""Words of PyTorch, DuckDB, the C++ library, Python, Arrow and the linker in other errors."""

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = Path("/sys/fs/cgroup")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Of the kernel's documentation of /proc: the peak of resident memory begins anew."""


def require_memory(needed: float, free: float, what: str, advice: str) -> None:
    """UnsupportedError where ``what`` needs more bytes than are free; ``advice`` is what to do."""
    if needed > free:
        raise UnsupportedError(
            f"{what} takes about {memory(needed)} of memory, and {memory(free)} are free; {advice}"
        )


def was_refused(error: BaseException) -> bool:
    """True for an error that is the system's refusal of memory to any library."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return any(sign in str(error) for sign in _SIGNS_OF_REFUSAL)


def reset_peak_of_process() -> bool:
    """Have `peak_of_process` count from here; False where the system cannot, as beside Linux."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def peak_of_process() -> int:
    """Bytes resident at most since the process began, or the peak was reset."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


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


def _numbers(path: Path) -> dict[str, int]:
    """The first number of each line of a file of names and numbers."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}
