"""States of the workers of one service: each keeps a small file in a directory of theirs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class State:
    """State of one worker; times are of the monotonic clock, which processes share."""

    answers: bool = False
    """True once it has loaded its runs."""
    asked_ns: int = 0
    """Time when it was last asked for a reload."""
    looked_ns: int = 0
    """Time when its last load began."""
    failed: str | None = None
    """Message of that load, where it failed."""


class Workers:
    """The states that workers keep in a directory, and why the first of them could not begin."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = directory / f"{os.getpid()}.json"
        self._failure = directory / "failure"

    def write(self, state: State) -> None:
        """Replace the state of this worker."""
        beside = self._own.with_suffix(".new")
        beside.write_text(json.dumps(asdict(state)))
        beside.replace(self._own)

    def read(self) -> Sequence[State]:
        """The states of those that live."""
        return [
            State(**json.loads(path.read_text()))
            for path in self._directory.glob("[0-9]*.json")
            if is_alive(int(path.stem))
        ]

    def fail(self, message: str) -> None:
        """Say why no worker can begin."""
        self._failure.write_text(message)

    def failure(self) -> str | None:
        """The message of a worker that could not begin, if there is one."""
        return self._failure.read_text() if self._failure.exists() else None


def is_alive(process: int) -> bool:
    """True for a process that runs, as this user."""
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
