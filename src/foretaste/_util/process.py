"""This process: the signals that end it, and the launcher that started it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Self

from foretaste._util.system import ENDING
from foretaste.errors import RankError, Report, with_report

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


class CaughtSignals:
    """Context in which ``act`` gets every ending signal, until the end or `let_go`.

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
        self.let_go()

    def let_go(self) -> None:
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
        host, port = os.environ.get("MASTER_ADDR"), _number("MASTER_PORT")
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
    """The rank of this process, from the environment.

    Raises RankError if a variable is missing or does not fit the others. It is also raised if
    another launcher started several processes, since each would do the whole work.
    """
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if rank is None and size is None:
        _check_no_other()
        return Launch()
    if rank is None or size is None:
        there, missing = ("RANK", "WORLD_SIZE") if size is None else ("WORLD_SIZE", "RANK")
        raise RankError(
            f"{there} is set to {os.environ[there]} in the environment and {missing} is not; start "
            f"the ranks with torchrun, which sets both, or unset {there}"
        )
    found = Launch(rank, size, _number("LOCAL_RANK") or 0, _number("LOCAL_WORLD_SIZE") or 1)
    if not 0 <= rank < size:
        raise RankError(f"RANK is {rank} and WORLD_SIZE {size}: ranks are numbered from 0")
    return found


def _check_no_other() -> None:
    for launcher, size_name, rank_name in _OTHERS:
        size = _number(size_name)
        if size is None or size < 2 or rank_name not in os.environ:
            continue
        error = RankError(
            f"{launcher} started this {size} times, and each process would do the whole work; "
            "start it once on each machine by torchrun instead: torchrun --nproc-per-node N -m -- "
            f"foretaste ... (to run it {size} times on purpose, unset {size_name})"
        )
        raise with_report(error, Report(is_printed=_number(rank_name) != 0))


def _number(name: str) -> int | None:
    """The whole number in a variable; None if it is not set or empty."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise RankError(f"{name} is {text!r} in the environment; it must be a whole number")
    return int(text)
