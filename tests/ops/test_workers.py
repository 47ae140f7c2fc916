"""Chunks of work and the threads that compute them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from foretaste.ops.workers import parallel_map, single_threaded

CPU = torch.device("cpu")


@pytest.fixture
def _three_threads() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.usefixtures("_three_threads")
def test_each_thread_computes_alone() -> None:
    def num_threads(_: int) -> int:
        found = torch.get_num_threads()
        torch.set_num_threads(3)  # a chunk's leftovers do not reach the next chunk
        return found

    assert list(parallel_map(num_threads, range(30), CPU)) == [1] * 30
    assert single_threaded(torch.get_num_threads, CPU) == 1
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_results_are_in_the_order_of_the_chunks() -> None:
    assert list(parallel_map(lambda chunk: chunk * chunk, range(50), CPU)) == [
        n * n for n in range(50)
    ]
