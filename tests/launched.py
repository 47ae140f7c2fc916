"""Command lines of foretaste among ranks, started like torchrun's, for tests that end some ranks.

    with launched(2, "train vae data --run run", tmp_path) as ranks:
        ranks.wait_for(tmp_path / "run" / "metrics.jsonl", '"event": "epoch"')
        ranks.kill(1)
        assert ranks.statuses() == [2, -9]
    assert "rank 1" in ranks.stderr

The processes are forked with torch imported. They find the variables of torchrun and a store that
this process holds, as torchrun's agent does. Every wait is bounded, and ends in the stacks of all;
at the end none is left.
"""

from __future__ import annotations

import faulthandler
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch.distributed as dist

from tests.forks import fork
from tests.stacks import abort

TIMEOUT_S = 60.0


class Launched:
    """Processes of one launch, by rank."""

    def __init__(self, directory: Path, store: dist.TCPStore) -> None:
        self.directory = directory
        self.store = store
        self.attempt = 0
        self.processes: dict[int, BaseProcess] = {}

    def start(
        self,
        line: str,
        size: int,
        only: Sequence[int] | None = None,
        prelude: Callable[[int], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start ranks, all or ``only`` some, in place of earlier ones; each calls ``prelude``."""
        for rank in range(size) if only is None else only:
            variables = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": size,
                "LOCAL_WORLD_SIZE": size,
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": self.store.port,
                "TORCHELASTIC_USE_AGENT_STORE": True,
                "TORCHELASTIC_RESTART_COUNT": self.attempt,
                "FORETASTE_JOIN_TIMEOUT_S": 30,
            }
            texts = {name: str(value) for name, value in variables.items()} | dict(env or {})
            self.processes[rank] = fork(_run, line, rank, self.directory, texts, prelude)
        self.attempt += 1

    def wait_for(self, path: Path, text: str) -> None:
        """Wait until a file holds a text."""
        self.wait_until(lambda: path.exists() and text in path.read_text(), f"{path} has {text}")

    def wait_until(self, condition: Callable[[], bool], said: str) -> None:
        """Wait until a condition is true; TimeoutError with the stacks of all if it never is."""
        ends = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > ends:
                abort(self.processes.values())
                raise TimeoutError(f"waited in vain until {said}: {self.stderr}")
            alive = [one for one in self.processes.values() if one.is_alive()]
            assert alive, f"all ended before {said}: {self.stderr}"
            time.sleep(0.02)

    def send(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def statuses(self, ranks: Sequence[int] | None = None) -> list[int | None]:
        """Exit statuses of the ranks, once they have ended."""
        ends = time.monotonic() + TIMEOUT_S
        chosen = sorted(self.processes) if ranks is None else ranks
        for rank in chosen:
            self.processes[rank].join(max(0.0, ends - time.monotonic()))
        found = [self.processes[rank].exitcode for rank in chosen]
        if None in found:
            abort(self.processes.values())
            raise TimeoutError(f"of ranks {[*chosen]} the statuses were {found}: {self.stderr}")
        return found

    @property
    def stderr(self) -> str:
        """Everything that the ranks wrote to stderr."""
        return _text(self.directory, "stderr")

    @property
    def stdout(self) -> str:
        """Everything that the ranks wrote to stdout."""
        return _text(self.directory, "stdout")

    def errors(self) -> list[str]:
        """Lines on stderr outside the display: errors, interrupts, tracebacks."""
        marks = ("error:", "interrupted", "Traceback", "terminate called")
        return [line for line in self.stderr.splitlines() if line.startswith(marks)]


@contextmanager
def launched(
    size: int,
    line: str,
    directory: Path,
    only: Sequence[int] | None = None,
    prelude: Callable[[int], None] | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Launched]:
    """Ranks that run a command line in ``directory``; the end kills ranks that still run."""
    store = dist.TCPStore(
        "localhost", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    ranks = Launched(directory, store)
    try:
        ranks.start(line, size, only, prelude, env)
        yield ranks
    finally:
        for process in ranks.processes.values():
            process.kill()
            process.join(10)


def _text(directory: Path, name: str) -> str:
    return "".join(path.read_text() for path in sorted(directory.glob(f"rank-*.{name}")))


def _run(
    line: str,
    rank: int,
    directory: Path,
    env: Mapping[str, str],
    prelude: Callable[[int], None] | None,
) -> None:
    import torch

    os.chdir(directory)
    os.environ.update(env)
    for name, number in (("stdout", 1), ("stderr", 2)):
        descriptor = os.open(f"rank-{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, number)
    faulthandler.enable(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    if prelude is not None:
        prelude(rank)
    from foretaste.cli.app import main

    main(shlex.split(line))
