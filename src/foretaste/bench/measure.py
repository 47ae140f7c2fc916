"""Clocks: the device is waited for at both ends, sides take turns, spreads are kept."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Spread:
    """Several measurements of one quantity."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        assert values, "nothing was measured"
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def per_second(self, amount: float) -> Spread:
        """These seconds as a rate: ``amount`` in each."""
        return Spread(tuple(amount / seconds for seconds in self.values))

    def over(self, other: Spread) -> Spread:
        """The ratio of each measurement to the other side's of the same turn."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        """Median, extremes and the measurements themselves."""
        return {
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": list(self.values),
        }


@dataclass(frozen=True)
class Latency:
    """Times of single calls, in seconds, turn by turn."""

    turns: tuple[tuple[float, ...], ...]

    @property
    def num_calls(self) -> int:
        return sum(map(len, self.turns))

    def averages(self) -> Spread:
        """Mean seconds per call of each turn."""
        return Spread.of([statistics.fmean(turn) for turn in self.turns])

    def as_dict(self) -> dict[str, float]:
        """Average and percentiles over all calls, in milliseconds."""
        calls_ms = [1e3 * seconds for turn in self.turns for seconds in turn]
        calls = torch.tensor(calls_ms, dtype=torch.float64)
        levels = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
        percentiles = {name: calls.quantile(level).item() for name, level in levels.items()}
        return {"average": statistics.fmean(calls_ms), **percentiles}


def synchronise(device: torch.device) -> None:
    """Wait until ``device`` has done everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, the device idle at both ends."""
    synchronise(device)
    started = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - started


def latencies(
    calls: Mapping[str, Callable[[int], object]],
    *,
    turns: int,
    num_calls: int,
    seconds: float,
    device: torch.device,
) -> dict[str, Latency]:
    """Times of calls, the sides taking turns of several calls each.

    Each turn begins with a call that does not count. A call is given its number, so that it may
    vary its input. ``num_calls`` and ``seconds`` are spread over the turns; each has one call at
    least.
    """
    each = -(-num_calls // turns)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in calls}
    for turn in range(turns):
        for name, call in calls.items():
            found[name].append(_turn(call, turn * each, each, seconds / turns, device))
    return {name: Latency(tuple(turns_of_side)) for name, turns_of_side in found.items()}


def _turn(
    call: Callable[[int], object], first: int, num_calls: int, seconds: float, device: torch.device
) -> tuple[float, ...]:
    call(first)
    ends_at = time.perf_counter() + seconds
    times = [timed(lambda: call(first), device)]
    for number in range(first + 1, first + num_calls):
        if time.perf_counter() >= ends_at:
            break
        times.append(timed(lambda number=number: call(number), device))  # type: ignore[misc]
    return tuple(times)
