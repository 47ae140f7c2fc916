"""How numbers are written for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """How many there are of something: 1 user, 2,000 users."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def compact(number: float) -> str:
    """A number in three digits: 1.31 M, 12.1 k, 830."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # less is rounded to 999 of the unit below
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"
