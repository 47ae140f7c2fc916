"""How numbers are written for people."""

from __future__ import annotations

import pytest

from foretaste._util.formatting import compact, counted, duration, memory


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (73.72, "73.7"),
        (830, "830"),
        (999.4, "999"),
        (999.6, "1 k"),
        (1500, "1.5 k"),
        (999_999, "1 M"),
        (1_310_000, "1.31 M"),
        (2e9, "2 G"),
    ],
)
def test_compact_numbers(number: float, text: str) -> None:
    assert compact(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00:00"), (80, "0:01:20"), (3599.6, "1:00:00"), (None, "-:--:--"), (1e18, "-:--:--")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counted() -> None:
    assert [counted(count, "user") for count in (0, 1, 2000)] == [
        "0 users",
        "1 user",
        "2,000 users",
    ]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "1 MiB"),
        (310 * 2**20, "310 MiB"),
        (1023 * 2**20, "1.0 GiB"),
        (4.75e9, "4.4 GiB"),
        (2**51, "2,097,152.0 GiB"),
    ],
)
def test_memory(num_bytes: float, text: str) -> None:
    assert memory(num_bytes) == text
