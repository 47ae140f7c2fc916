"""Speed of long work, and lines on it where no terminal shows bars."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from foretaste._util.formatting import duration

EVERY_S = 30.0
"""Seconds between two lines."""


@dataclass(frozen=True)
class Pace:
    """Speed since a time and position: of a training in epochs, validation included."""

    since: float
    position: float

    def per_s(self, now: float, position: float) -> float:
        return (position - self.position) / max(now - self.since, 1e-9)

    def seconds_to(self, end: float, now: float, position: float) -> float | None:
        """The time left until ``end``; None before anything is done."""
        if position <= self.position:
            return None
        return (end - position) / self.per_s(now, position)


class PlainProgress:
    """Says how far long work is, in a line every half minute: a file or pipe has no bars."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said_at = time.perf_counter()

    def is_due(self) -> bool:
        """True once each half minute."""
        now = time.perf_counter()
        is_due = now - self._said_at >= EVERY_S
        if is_due:
            self._said_at = now
        return is_due

    def __call__(self, step: str, share: float, left_s: float | None) -> None:
        """Say, where a line is due, which share of a step is done and how long the rest takes."""
        if self.is_due():
            self._say(f"{step}: {share:.0%}, {duration(left_s)} left")
