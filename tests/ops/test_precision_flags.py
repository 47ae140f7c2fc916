"""Flags of the process while threads need other values than the application."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
import torch

from foretaste.ops.precision_flags import float32_products

CPU = torch.device("cpu")
MATMUL: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@pytest.fixture
def bf16() -> Iterator[None]:
    """An application that has set a lower precision."""
    MATMUL.fp32_precision = "bf16"
    yield
    MATMUL.fp32_precision = "none"


def test_an_error_gives_it_back(bf16: None) -> None:
    with pytest.raises(ValueError, match="mine"), float32_products(CPU):
        raise ValueError("mine")
    assert MATMUL.fp32_precision == "bf16"


def test_nothing_is_set_if_products_are_exact_anyway() -> None:
    with float32_products(CPU):
        assert MATMUL.fp32_precision == "none"


def test_threads_with_the_same_setting_share_it(bf16: None) -> None:
    both_within = Barrier(2, timeout=10)

    def hold() -> str:
        with float32_products(CPU):
            both_within.wait()
            return str(MATMUL.fp32_precision)

    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(hold) for _ in range(2)]
    assert [one.result() for one in found] == ["ieee", "ieee"]
    assert MATMUL.fp32_precision == "bf16"


@pytest.mark.parametrize("exact_comes_first", [True, False])
@pytest.mark.parametrize("exact_goes_first", [True, False])
def test_threads_that_differ_compute_exactly(
    bf16: None, exact_comes_first: bool, exact_goes_first: bool
) -> None:
    MATMUL.fp32_precision = "tf32"  # the value of neither thread
    seen = []

    def look() -> None:
        seen.append(MATMUL.fp32_precision)

    def hold(precision: str, steps: tuple[Event, ...]) -> None:
        is_to_come, came, is_to_go, gone = steps
        is_to_come.wait(10)
        with float32_products(CPU, precision):
            look()
            came.set()
            is_to_go.wait(10)
        gone.set()

    steps = {precision: tuple(Event() for _ in range(4)) for precision in ("ieee", "bf16")}
    with ThreadPoolExecutor(2) as threads:
        for precision, each in steps.items():
            threads.submit(hold, precision, each)
        for first, begin in ((exact_comes_first, 0), (exact_goes_first, 2)):
            for precision in ("ieee", "bf16") if first else ("bf16", "ieee"):
                steps[precision][begin].set()
                assert steps[precision][begin + 1].wait(10)
                if begin:
                    look()
    coming = ["ieee", "ieee"] if exact_comes_first else ["bf16", "ieee"]
    going = ["bf16", "tf32"] if exact_goes_first else ["ieee", "tf32"]
    assert seen == [*coming, *going]
