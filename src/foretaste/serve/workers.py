"""States of the workers of one service: one small file of each worker in a shared directory."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class State:
    """State of one worker. Times are of the monotonic clock, which all processes share."""

    answers: bool = False
    """True once the worker has loaded its runs."""
    asked_ns: int = 0
    """Time of the last request for a reload to this worker."""
    looked_ns: int = 0
    """Time when the last load of this worker began."""
    failed: str | None = None
    """Message of the last load if it failed."""


class Workers:
    """The states of all workers, and the reason why the first worker could not start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = directory / f"{os.getpid()}.json"
        self._failure = directory / "failure"

    def write(self, state: State) -> None:
        """Replace the state of this worker."""
        # By a rename, so that no other worker reads half a file.
        beside = self._own.with_suffix(".new")
        beside.write_text(json.dumps(asdict(state)))
        beside.replace(self._own)

    def read(self) -> Sequence[State]:
        """The states of the living workers."""
        return [
            State(**json.loads(path.read_text()))
            for path in self._directory.glob("[0-9]*.json")
            if is_alive(int(path.stem))
        ]

    def fail(self, message: str) -> None:
        """Store the reason why no worker can start."""
        self._failure.write_text(message)

    def failure(self) -> str | None:
        """The reason why a worker could not start, if there is one."""
        return self._failure.read_text() if self._failure.exists() else None


def is_alive(process: int) -> bool:
    """True for a running process of this user."""
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
