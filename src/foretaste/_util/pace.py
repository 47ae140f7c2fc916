"""Speed of long work, and plain lines of progress if there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from foretaste._util.formatting import duration

EVERY_S = 30.0
"""Seconds between two lines."""


@dataclass(frozen=True)
class Pace:
    """Speed since a time and position; of a training in epochs, with validation."""

    since: float
    position: float

    def per_s(self, now: float, position: float) -> float:
        return (position - self.position) / max(now - self.since, 1e-9)

    def seconds_to(self, end: float, now: float, position: float) -> float | None:
        """Return the time left until ``end``; None before anything is done."""
        if position <= self.position:
            return None
        return (end - position) / self.per_s(now, position)


class PlainProgress:
    """Progress of long work as a line every half minute, for files and pipes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said_at = time.perf_counter()

    def is_due(self) -> bool:
        """Return True once each half minute."""
        now = time.perf_counter()
        is_due = now - self._said_at >= EVERY_S
        if is_due:
            self._said_at = now
        return is_due

    def __call__(self, step: str, share: float, left_s: float | None) -> None:
        """Print the share done and the time left of a step, if a line is due."""
        if self.is_due():
            self._say(f"{step}: {share:.0%}, {duration(left_s)} left")
