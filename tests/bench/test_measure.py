"""Spreads, turns and percentiles; no test here depends on how long anything takes."""

from __future__ import annotations

import pytest
import torch

from foretaste.bench.config import InferenceBench
from foretaste.bench.inference import Calls, Case
from foretaste.bench.measure import Latency, PeakMemory, Spread
from foretaste.bench.session import Session
from tests.bench.rows import MODELS

CPU = torch.device("cpu")


def test_a_spread_keeps_its_values() -> None:
    spread = Spread.of([2.0, 1.0, 4.0])
    assert spread.as_dict() == {"median": 2.0, "min": 1.0, "max": 4.0, "values": [2.0, 1.0, 4.0]}
    assert spread.per_second(8).values == (4.0, 8.0, 2.0)


def test_percentiles_are_over_the_calls_of_all_turns() -> None:
    times = [number / 1000 for number in range(1, 101)]
    latency = Latency((tuple(times[::2]), tuple(times[1::2])))
    numbers = latency.as_dict()
    assert latency.num_calls == 100
    assert numbers["average"] == pytest.approx(50.5)
    assert numbers["p50"] == pytest.approx(50.5)
    assert numbers["p99"] == pytest.approx(99.01)
    assert latency.averages().values == pytest.approx((0.050, 0.051))


def test_each_turn_begins_with_a_call_that_does_not_count() -> None:
    called: list[int] = []
    options = InferenceBench(device="cpu", shape="9x9x9", repeats=2, warmup=1, calls=4, seconds=60)
    inputs = [(number,) for number in range(8)]
    case = Case({"batch_size": 1}, inputs, called.append, "")
    calls = Calls(Session("inference", MODELS["vae"], options), options, case)
    assert called == [0, 0]
    for _ in range(2):
        calls.take_turn()
    assert called[2:] == [0, 0, 1, 2, 2, 3]
    assert calls.as_numbers()["num_calls"] == 4


def test_peak_memory_sees_what_came_and_went(device: torch.device) -> None:
    memory = PeakMemory(device)
    large = torch.ones(64 << 18, device=device)  # 64 MiB
    del large
    if memory.is_reset:
        assert 60 <= memory.rise_mib() <= 160
    assert "peak" in memory.meaning


def test_peak_memory_starts_from_what_is_there(device: torch.device) -> None:
    before = torch.ones(64 << 18, device=device)
    memory = PeakMemory(device)
    if memory.is_reset:
        assert memory.rise_mib() <= 32
    assert before.numel()
