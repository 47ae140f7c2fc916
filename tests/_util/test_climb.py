"""Climbs worked out by hand: the points that are tried, and the last one."""

from __future__ import annotations

import pytest

from foretaste._util.climb import climb


def towards(by: float, end: float) -> object:
    return lambda point: None if point == end else point + by


@pytest.mark.parametrize(
    ("top", "tried", "found"),
    [
        (2, [1, 2, 3], 2),
        (0, [1, -1], 0),
        (-3, [1, -1, -2, -3], -3),  # -3 is the end of that direction
    ],
)
def test_a_direction_is_left_once_it_gains_nothing(top: int, tried: list[int], found: int) -> None:
    seen = []

    def value_of(point: int) -> float:
        seen.append(point)
        return -abs(point - top)

    up, down = towards(1, 10), towards(-1, -3)
    assert climb(0, value_of(0), value_of, [[up, down]]) == (found, -abs(found - top))  # type: ignore[list-item]
    assert seen == [0, *tried]


def test_a_small_gain_may_be_no_gain() -> None:
    double = lambda point: 2.0 * point  # noqa: E731
    value_of = {1.0: 100.0, 2.0: 100.4, 4.0: 200.0}.__getitem__
    assert climb(1.0, 100.0, value_of, [[double]], least_gain=1.005) == (1.0, 100.0)
    assert climb(1.0, 100.0, lambda point: float("nan"), [[double]]) == (1.0, 100.0)
