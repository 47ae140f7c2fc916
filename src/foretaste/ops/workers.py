"""Independent chunks of work, each computed by one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from foretaste.ops.torch_internals import compute_alone

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")

_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}
"""Pools, by process and number of threads."""


def parallel_map(
    work: Callable[[Chunk], Result], chunks: Sequence[Chunk], device: torch.device
) -> Iterator[Result]:
    """Return the results of all chunks, in their order.

    On a CPU a thread has a chunk for itself: threads that share out each operation wait for each
    other at its end, thousands of times, on a busy machine for most of the time.
    """
    num_threads = torch.get_num_threads()
    # `map` computes a chunk when its result is asked for, the pool begins at once: callers take all
    # results.
    if device.type != "cpu" or len(chunks) <= 1 or num_threads == 1:
        return map(work, chunks)
    return _pool(num_threads).map(partial(_compute_alone, work), chunks)


def single_threaded(work: Callable[[], Result], device: torch.device) -> Result:
    """Return the result of ``work``, on a CPU by one thread: for a call of many short operations.

    The eigenvectors of a matrix of 128 take one thread 1.2 ms, and two threads 0.9 s of waiting for
    each other where other programs keep the cores busy.
    """
    num_threads = torch.get_num_threads()
    if device.type != "cpu" or num_threads == 1:
        return work()
    return _pool(num_threads).submit(_compute_alone, work).result()


def _compute_alone(work: Callable[..., Result], *chunk: object) -> Result:
    # Before each chunk, because a thread that was set once was seen with three threads later.
    compute_alone()
    return work(*chunk)


def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a fork gets its own, because it has none of these."""
    pool = ThreadPoolExecutor(num_threads)  # threads begin with their first work
    return _POOLS.setdefault((os.getpid(), num_threads), pool)
