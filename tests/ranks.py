"""Ranks for tests: `run_ranks` calls a function on N ranks of a gloo group and returns its results.

    def total(ranks: Ranks, number: int) -> int:  # of a module: it is pickled by name
        ...

    assert run_ranks(total, 3, 5) == [15, 15, 15]

The processes are forked with torch imported, stay for the session and serve every test with the
same number of ranks, so a call costs milliseconds. They have one thread. `foretaste.train` and its
like, called within, run on these ranks too. Every wait is bounded. One rank is this process.
"""

from __future__ import annotations

import atexit
import faulthandler
import multiprocessing
import pickle
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.forks import fork
from tests.stacks import abort

TIMEOUT_S = 120.0
GRACE_S = 5.0
"""Seconds for the other ranks to end after a rank has failed."""


def run_ranks(
    function: Callable[..., Any], size: int, *args: Any, timeout_s: float = TIMEOUT_S
) -> list[Any]:
    """Results of ``function(ranks, *args)`` on each of ``size`` ranks, in their order.

    The first exception among the ranks is raised here, with its traceback there as a note;
    TimeoutError with the stacks of all if a rank is not done in time. Function, arguments and
    results are pickled.
    """
    if size == 1:
        from foretaste.distributed.collectives import Ranks

        return [function(Ranks(), *args)]
    if size not in _groups:
        _groups[size] = _Group(size)
    return _groups[size].call(pickle.dumps((function, args)), timeout_s)


class _Group:
    """Processes of one gloo group, waiting for calls."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.directory = Path(tempfile.mkdtemp(prefix="ranks-"))
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = multiprocessing.Pipe()
            self.processes.append(fork(_serve, theirs, rank, size, self.directory / "store"))
            theirs.close()
            self.pipes.append(ours)

    def call(self, work: bytes, timeout_s: float) -> list[Any]:
        answers: dict[int, tuple[Any, BaseException | None]] = {}
        ends = time.monotonic() + timeout_s
        try:
            for pipe in self.pipes:
                pipe.send_bytes(work)
            while len(answers) < self.size:
                waiting = [self.pipes[rank] for rank in range(self.size) if rank not in answers]
                ready = wait(waiting, max(0.0, ends - time.monotonic()))
                if not ready:
                    break
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    rank = self.pipes.index(pipe)
                    answers[rank] = pickle.loads(pipe.recv_bytes())
                    if answers[rank][1] is not None:
                        ends = min(ends, time.monotonic() + GRACE_S)
        except (EOFError, OSError) as error:
            self.close()
            raise RuntimeError(f"one of {self.size} ranks ended") from error
        stacks = ""
        if len(answers) < self.size:
            abort(self.processes)
            paths = sorted(self.directory.glob("rank-*.stacks"))
            stacks = "".join(f"\n{path.stem}:\n{path.read_text()}" for path in paths)
            self.close()
        for _, error in answers.values():
            if error is not None:
                raise error
        if len(answers) < self.size:
            missing = sorted({*range(self.size)} - {*answers})
            message = f"ranks {missing} of {self.size} were not done in {timeout_s} s"
            raise TimeoutError(message + stacks)
        return [answers[rank][0] for rank in range(self.size)]

    def close(self) -> None:
        """End the processes; the next call starts new ones."""
        _groups.pop(self.size, None)
        for process in self.processes:
            process.kill()
            process.join(10)
        for pipe in self.pipes:
            pipe.close()
        shutil.rmtree(self.directory, ignore_errors=True)


_groups: dict[int, _Group] = {}


@atexit.register
def _close() -> None:
    for group in list(_groups.values()):
        group.close()


def _serve(pipe: Connection, rank: int, size: int, store: Path) -> None:
    """Serve as a rank: call each received function, and send back its result or error."""
    import torch
    import torch.distributed as dist

    from foretaste.distributed.collectives import Ranks

    stacks = store.with_name(f"rank-{rank}.stacks").open("w")  # open as long as the rank lives
    faulthandler.enable(stacks)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    while True:
        try:
            work = pipe.recv_bytes()
        except EOFError:
            return
        try:
            function, args = pickle.loads(work)
            answer = pickle.dumps((function(Ranks(rank, size), *args), None))
        except BaseException as error:
            error.add_note(f"on rank {rank} of {size}:\n{traceback.format_exc()}")
            answer = _pickled(error)
        pipe.send_bytes(answer)


def _pickled(error: BaseException) -> bytes:
    try:
        answer = pickle.dumps((None, error))
        pickle.loads(answer)
        return answer
    except Exception:
        return pickle.dumps((None, RuntimeError("\n".join([repr(error), *error.__notes__]))))
