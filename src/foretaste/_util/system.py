"""This process on its system: locks, the exchange of names, limits and peaks of memory, forks, the
signals that end the process, and the launcher that started it.

Functions that only some systems have work with a default on all others.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from foretaste.errors import RankError, Report, attach_report

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that end a command: Ctrl-C, kill, a closed terminal. Windows has no SIGHUP."""

BROKEN_PIPE: int = getattr(signal, "SIGPIPE", 13)
"""Signal of a pipe without a reader. Windows has none."""

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open` that refuses links; 0 under Windows."""

NO_WAIT: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Flags of `os.open` that wait for no other end of a pipe; 0 under Windows."""

_IS_WINDOWS = sys.platform == "win32"

_NO_DIRECTORIES = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that cannot sync directories."""

_MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Value for clear_refs that resets the peak of resident memory (man 5 proc)."""

_OTHERS = (
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("mpirun", "PMI_SIZE", "PMI_RANK"),
    ("mpirun", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("horovodrun", "HOROVOD_SIZE", "HOROVOD_RANK"),
    # The variables of a step, which only srun sets. The shell of sbatch and salloc, which has
    # started no process yet, also has SLURM_NTASKS.
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""Launchers other than torchrun, with their variables: number of processes, number of this one."""


def try_lock(descriptor: int, *, without_locks: bool = True) -> bool:
    """Lock an open file until it is closed; False if another process has the lock.

    ``without_locks`` is the result on a system or file system without such locks.
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
    """Sync a file or directory to the disk."""
    if _IS_WINDOWS and path.is_dir():
        return
    # Windows syncs only files that are open for writing, and cannot open directories.
    descriptor = os.open(path, os.O_RDWR if _IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in _NO_DIRECTORIES:
            raise
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically; False if the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    at_cwd, both = -100, 2
    return bool(renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), both) == 0)


def after_fork_in_child(act: Callable[[], None]) -> None:
    """Call ``act`` at the start of every child that this process forks later."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def free_bytes() -> int:
    """Return the bytes of main memory that this process can still take; ``sys.maxsize`` if unknown.

    It is the free memory of the machine, with swap, within the limits of the control group and of
    the process.
    """
    free = sys.maxsize
    kibibytes = _numbers(_MEMINFO) if _MEMINFO.is_file() else {}
    if "MemAvailable:" in kibibytes:
        free = 1024 * (kibibytes["MemAvailable:"] + kibibytes.get("SwapFree:", 0))
    left = [free, _address_space_left()]
    for limit, used in (
        ("memory.max", "anon"),
        ("memory/memory.limit_in_bytes", "total_rss"),
    ):
        path = CGROUPS / limit
        try:
            text = path.read_text().strip()
            # Without the page cache, which the kernel gives back under pressure.
            taken = _numbers(path.parent / "memory.stat")[used]
        except (OSError, KeyError):
            continue
        if text != "max":
            left.append(int(text) - taken)
    return max(0, min(left))


def _address_space_left() -> int:
    """Return the bytes still mappable (``ulimit -v``); ``sys.maxsize`` without a limit."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        return sys.maxsize
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - int(statm.read_text().split()[0]) * resource.getpagesize()


def most_files() -> int:
    """Return the number of files that this process may have open (``ulimit -n``)."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def reset_peak_of_process() -> bool:
    """Reset `peak_of_process`; False on systems other than Linux, which cannot."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def peak_of_process() -> int | None:
    """Return the peak of resident bytes since the start or the last reset; None under Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_bytes(name: str) -> int:
    """Return the bytes in a line of Linux's status of this process, such as ``VmRSS``."""
    return 1024 * _numbers(_STATUS)[f"{name}:"]


def cpu_name() -> str:
    """Return the name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _numbers(path: Path) -> dict[str, int]:
    """Return the first number of each line by its name, in a file such as /proc/meminfo."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if words[1:] and words[1].isdecimal()}


class CaughtSignals:
    """Context in which ``act`` gets every ending signal, until the end or `restore`.

    Signals can be caught in the main thread only. Signals that the process was started to ignore
    stay ignored.
    """

    def __init__(self, act: Callable[[int], None]) -> None:
        self.last: int | None = None
        """Number of the last signal."""
        self._act = act
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        def catch(number: int, frame: FrameType | None) -> None:
            self.last = number
            self._act(number)

        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, catch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Restore the earlier handlers."""
        while self._previous:
            signal.signal(*self._previous.popitem())


@dataclass(frozen=True)
class Launch:
    """Rank of this process among those that torchrun started; rank 0 of 1 without torchrun."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the ranks' store; RankError if they are not set."""
        host, port = os.environ.get("MASTER_ADDR"), _variable("MASTER_PORT")
        if not host or port is None:
            raise RankError(
                f"WORLD_SIZE is {self.size}, and MASTER_ADDR or MASTER_PORT is not set; start the "
                "ranks with torchrun, which sets all of them"
            )
        return host, port

    @property
    def attempt(self) -> str:
        """Number of times that torchrun has restarted the ranks."""
        return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def launch() -> Launch:
    """Return the rank of this process, from the environment.

    Raises RankError if a variable is missing or does not fit the others. It is also raised if
    another launcher started several processes, since each would do the whole work.
    """
    rank, size = _variable("RANK"), _variable("WORLD_SIZE")
    if rank is None and size is None:
        _check_no_other()
        return Launch()
    if rank is None or size is None:
        there, missing = ("RANK", "WORLD_SIZE") if size is None else ("WORLD_SIZE", "RANK")
        raise RankError(
            f"{there} is set to {os.environ[there]} in the environment and {missing} is not; start "
            f"the ranks with torchrun, which sets both, or unset {there}"
        )
    found = Launch(rank, size, _variable("LOCAL_RANK") or 0, _variable("LOCAL_WORLD_SIZE") or 1)
    if not 0 <= rank < size:
        raise RankError(f"RANK is {rank} and WORLD_SIZE {size}: ranks are numbered from 0")
    return found


def _check_no_other() -> None:
    for launcher, size_name, rank_name in _OTHERS:
        size = _variable(size_name)
        if size is None or size < 2 or rank_name not in os.environ:
            continue
        error = RankError(
            f"{launcher} started this {size} times, and each process would do the whole work; "
            "start it once on each machine by torchrun instead: torchrun --nproc-per-node N -m -- "
            f"foretaste ... (to run it {size} times on purpose, unset {size_name})"
        )
        raise attach_report(error, Report(is_printed=_variable(rank_name) != 0))


def _variable(name: str) -> int | None:
    """Return the whole number in a variable; None if it is not set or empty."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise RankError(f"{name} is {text!r} in the environment; it must be a whole number")
    return int(text)
