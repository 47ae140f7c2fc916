"""Joining the ranks that torchrun started; a single process imports no more than this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch.distributed as dist

from foretaste._util.process import Launch, launch
from foretaste.errors import RankError
from foretaste.ops.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from foretaste.launch.heartbeats import Heartbeats

_joined: Ranks | None = None
"""The ranks of a `joined` around the code that runs."""

_watched: Heartbeats | None = None
"""Their heartbeats."""


_is_lost = False
"""A process group on GPUs was left behind by ranks that failed: ending it could wait for ever."""


def watched() -> Heartbeats | None:
    """The heartbeats of the ranks joined around the code that runs; None without them."""
    return _watched


@contextmanager
def joined() -> Iterator[Ranks]:
    """Yield the ranks that torchrun started this process among; `ALONE` without it.

    Within another, the same ranks. All are watched until they leave: should one end or fall silent,
    all do.

    A process group that the caller has initialised is used, and stays. It needs a backend for
    tensors on the CPU beside that of GPUs, such as "cpu:gloo,cuda:nccl". Its ranks are watched
    where torchrun started them; elsewhere the timeout of the group ends what waits for a lost one.

    Raises RankError where the environment is not whole or another launcher set it, ranks do not
    come in time, differ in versions, command or threads, or are lost, and for a process group
    without such a backend.
    """
    global _joined, _watched, _is_lost
    if _joined is not None:
        yield _joined
        return
    if _is_lost:
        raise RankError(
            "ranks that failed together cannot begin anew in the same processes; start torchrun "
            "again, with --max-restarts for it to do so"
        )
    has_group = dist.is_available() and dist.is_initialized()
    if has_group:
        _check_backend()
        size, started = dist.get_world_size(), launch() if "RANK" in os.environ else Launch()
        if not (dist.is_torchelastic_launched() and started.size == size):
            yield _ranks_of(replace(started, rank=dist.get_rank(), size=size))
            return
    else:
        started = launch()
    if started.size == 1:
        yield ALONE
        return
    from foretaste.launch.heartbeats import process_group

    try:
        with process_group(started) as heartbeats:
            _joined, _watched = _ranks_of(started, heartbeats), heartbeats
            yield _joined
    finally:
        _joined = _watched = None
        _is_lost = dist.is_initialized() and not has_group


def _check_backend() -> None:
    """RankError where the caller's process group has no collectives of tensors on the CPU."""
    backend = dist.get_backend_config()
    if "cpu:" not in backend:
        raise RankError(
            f"torch.distributed was initialised with the backend {backend!r}, which has no "
            'collectives of tensors on the CPU; initialise it with "cpu:gloo,cuda:nccl", or leave '
            "that to foretaste"
        )


def _ranks_of(started: Launch, watch: Heartbeats | None = None) -> Ranks:
    return Ranks(
        started.rank,
        started.size,
        local_rank=started.local_rank,
        local_size=started.local_size,
        watch=watch,
    )
