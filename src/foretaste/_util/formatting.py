"""How numbers are written for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """How many there are of something: 1 user, 2,000 users."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def memory(num_bytes: float) -> str:
    """An amount of memory, rounded: 4.4 GiB, 310 MiB."""
    mib = num_bytes / 2**20
    return f"{mib / 1024:,.1f} GiB" if mib >= 1000 else f"{max(mib, 1):,.0f} MiB"


def compact(number: float) -> str:
    """A number in three digits: 1.31 M, 12.1 k, 830."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # less is rounded to 999 of the unit below
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"
