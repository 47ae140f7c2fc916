"""Flags of the process, held by threads that want them otherwise than the application."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Barrier, Event
from typing import Any

import pytest
import torch

from foretaste.ops.precision_flags import float32_products

CPU = torch.device("cpu")
MATMUL: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@pytest.fixture
def bf16() -> Iterator[None]:
    """An application that has asked for less."""
    MATMUL.fp32_precision = "bf16"
    yield
    MATMUL.fp32_precision = "none"


def test_an_error_gives_it_back(bf16: None) -> None:
    with pytest.raises(ValueError, match="mine"), float32_products(CPU):
        raise ValueError("mine")
    assert MATMUL.fp32_precision == "bf16"


def test_nothing_is_set_where_products_are_exact_anyway() -> None:
    with float32_products(CPU):
        assert MATMUL.fp32_precision == "none"


def test_who_wants_the_same_shares_it(bf16: None) -> None:
    both_within = Barrier(2, timeout=10)

    def hold() -> str:
        with float32_products(CPU):
            both_within.wait()
            return str(MATMUL.fp32_precision)

    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(hold) for _ in range(2)]
    assert [one.result() for one in found] == ["ieee", "ieee"]
    assert MATMUL.fp32_precision == "bf16"


@pytest.mark.parametrize("first_is_exact", [True, False])
def test_who_wants_another_value_waits(bf16: None, first_is_exact: bool) -> None:
    exact, lower = float32_products(CPU), float32_products(CPU, "bf16")
    first, second = (exact, lower) if first_is_exact else (lower, exact)
    first_is_in, may_leave, order = Event(), Event(), []

    def hold(products: AbstractContextManager[object], name: str) -> None:
        with products:
            order.append((name, MATMUL.fp32_precision))
            first_is_in.set()
            may_leave.wait(10)
            order.append((name, MATMUL.fp32_precision))

    with ThreadPoolExecutor(2) as threads:
        threads.submit(hold, first, "first")
        first_is_in.wait(10)
        later = threads.submit(hold, second, "second")
        assert not later.done()
        may_leave.set()
    values = ("ieee", "bf16") if first_is_exact else ("bf16", "ieee")
    assert order == [
        ("first", values[0]), ("first", values[0]), ("second", values[1]), ("second", values[1])
    ]  # fmt: skip
    assert MATMUL.fp32_precision == "bf16"
