"""A hill climb: small changes of a point, one way after another, while its value grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Point = TypeVar("Point")


def climb(
    start: Point,
    value: float,
    value_of: Callable[[Point], float],
    ways: Iterable[Sequence[Callable[[Point], Point | None]]],
    least_gain: float = 1.0,
) -> tuple[Point, float]:
    """Return the best point that was tried, and its value; ``value`` is the start's.

    A way has one direction or two opposite ones. A direction gives the next point, or None at its
    end, and the climb follows it while each step multiplies the value by more than
    ``least_gain``. The other direction is tried only if the first one gained nothing, because a
    value may cost a fit.
    """
    best = start
    for way in ways:
        before = best
        for direction in way:
            while (other := direction(best)) is not None:
                if not (found := value_of(other)) > least_gain * value:
                    break
                best, value = other, found
            if best is not before:
                break
    return best, value
