"""Joining the ranks that torchrun started: who is here, that they are alike, and their group.

`torchrun` starts the ranks, ends all of them once one has ended, and starts them again.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

import foretaste
from foretaste._util.system import Launch, launch
from foretaste.distributed.collectives import ALONE, Ranks
from foretaste.errors import RankError, Report, attach_report, report_of

JOIN_TIMEOUT = "FORETASTE_JOIN_TIMEOUT_S"
"""Environment variable: seconds that ranks wait for each other at the start."""

TIMEOUT = "FORETASTE_COLLECTIVE_TIMEOUT_S"
"""Environment variable: seconds that a rank waits in a collective for one that does not come."""

_JOIN_S = 300.0
# Gloo alone would wait for 30 minutes.
# torchrun kills a rank that hangs 30 s after the others have ended.
_TIMEOUT_S = 60.0
_PATIENCE = timedelta(days=1)
"""Limit of waiting for work that one rank does alone, such as preparing, a fit in one pass or a
save: nobody knows how long that takes."""

_PAUSE_S = 0.05  # between two looks at the store
_REPORT_S = 5.0
"""Seconds that the store has to answer a rank that fails before it has met the others."""

_joined: Ranks | None = None
"""The ranks of a `join_ranks` around the code that runs."""

_met_in: Store | None = None
"""The place in the store that the ranks met in last."""

_met_by = ""
"""The token by which they met there."""


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """Yield the ranks that torchrun started this process among; `ALONE` without it.

    Inside another `join_ranks` the same ranks are yielded. A process group that the caller has
    initialised is used, and stays, with its own timeout. The group needs a backend for tensors on
    the CPU beside the GPUs' backend, such as "cpu:gloo,cuda:nccl".

    Raises RankError if the environment is not whole or another launcher set it, if ranks do not
    come in time or differ in versions, command or threads, and for a process group without that
    backend. If a rank ends or hangs, the next collective of the others raises RankError.
    """
    global _joined
    if _joined is not None:
        yield _joined
        return
    is_callers = dist.is_available() and dist.is_initialized()
    if is_callers:
        _check_backend()
        started = launch() if "RANK" in os.environ else Launch()
        started, names = replace(started, rank=dist.get_rank(), size=dist.get_world_size()), []
    else:
        started = launch()
        names = _initialise(started) if started.size > 1 else []
    if started.size == 1:
        yield ALONE
        return
    is_left = False
    # The patient group is Gloo's on GPUs too: its ranks wait on the host.
    _joined = ranks = Ranks(
        started.rank,
        started.size,
        local_rank=started.local_rank,
        local_size=started.local_size,
        names=names,
        patient=dist.new_group(backend="gloo", timeout=_PATIENCE),
    )
    try:
        if not is_callers:
            ranks.check_alike(_facts())
        yield ranks
        # No rank leaves before all are done: the collectives of the others would fail.
        dist.barrier(ranks.patient)
    except BaseException as error:
        if isinstance(error, Exception):
            agree_on_report(error, started)  # before the other ranks find this rank lost
        is_left = torch.cuda.is_available()  # ending NCCL's group may wait for a rank that is lost
        raise
    finally:
        # A group that Python still holds when it exits ends the process by SIGABRT.
        own, _joined, ranks.patient = None if not is_callers else ranks.patient, None, None
        gc.collect()  # finished collectives hold their group, in cycles with their closures
        if not is_left:
            dist.destroy_process_group(own)
        del own


def agree_on_report(error: Exception, started: Launch) -> None:
    """Let the first rank that ends by an error print it, and no other; once for an error."""
    if report_of(error) is not None:
        return
    limit_s = _REPORT_S
    with suppress(RankError):  # `error` may be about this variable
        limit_s = min(limit_s, _seconds(JOIN_TIMEOUT, _JOIN_S))
    try:
        store = _met_in or PrefixStore(started.attempt, _store(started, limit_s))
        is_printed = store.add("failed", 1) > 1
    except (RankError, RuntimeError):
        is_printed = False  # there is no store to ask
    attach_report(error, Report(is_printed, f"rank {started.rank}: " if started.rank else ""))


def _initialise(started: Launch) -> list[str]:
    """Initialise the process group of the ranks; returns their names."""
    global _met_in, _met_by
    store = _store(started, join_s := _seconds(JOIN_TIMEOUT, _JOIN_S))
    token, names = _meet(store, started, join_s)
    _met_in, _met_by = PrefixStore(token, store), token
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=_met_in,
        rank=started.rank,
        world_size=started.size,
        timeout=timedelta(seconds=_seconds(TIMEOUT, _TIMEOUT_S)),
    )
    return names


def _meet(store: Store, started: Launch, limit_s: float) -> tuple[str, list[str]]:
    """Wait until all ranks are here; returns a prefix for their keys, new each time, and names.

    torchrun keeps its store when it restarts the ranks, and each machine counts restarts by itself.
    So the first rank draws a token, and another has met it once it reads itself among the ranks
    that came to it. (Gloo's `monitored_barrier` needs a group, which needs all ranks.)

    Raises RankError if ranks do not come in time, on the first rank with their numbers.
    """
    size, own = (
        started.size,
        f"rank {started.rank} (process {os.getpid()} on {socket.gethostname()})",
    )
    if started.rank == 0:
        token = uuid4().hex
        store.set("foretaste/token", token)
        keys = [f"{token}/{rank}" for rank in range(1, size)]
        if not _wait(lambda: store.check(keys), limit_s):
            missing = [rank for rank in range(1, size) if not store.check([f"{token}/{rank}"])]
            raise RankError(
                f"{size - len(missing)} of {size} ranks came within {limit_s:g} s; missing: "
                f"{', '.join(map(str, missing))}. Start all nodes within that time, or set "
                f"{JOIN_TIMEOUT}"
            )
        names = [own, *(store.get(key).decode() for key in keys)]
        store.set(f"{token}/names", json.dumps(names))
        return token, names
    met: list[tuple[str, list[str]]] = []

    def is_met() -> bool:
        if not store.check(["foretaste/token"]):
            return False
        token = store.get("foretaste/token").decode()
        # This process has met by this token before, and the first rank draws another.
        if token == _met_by:
            return False
        store.set(f"{token}/{started.rank}", own)
        if store.check([f"{token}/names"]):
            names = json.loads(store.get(f"{token}/names"))
            met.extend([(token, names)] if own in names else [])
        return bool(met)

    # The first rank may have begun to wait later, and it is the one that says who is missing.
    if not _wait(is_met, 2 * limit_s):
        raise RankError(f"rank 0 of {size} did not come within {2 * limit_s:g} s")
    return met[0]


def _wait(is_over: Callable[[], bool], limit_s: float) -> bool:
    ends = time.monotonic() + limit_s
    while not is_over():
        if time.monotonic() > ends:
            return False
        time.sleep(_PAUSE_S)
    return True


def _store(started: Launch, timeout_s: float) -> Store:
    """Return the ranks' store, held by torchrun or, if ranks are started by hand, by the first."""
    host, port = started.address
    is_in_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    is_here = started.rank == 0 and not is_in_agent
    made: list[Store] = []
    problems: list[str] = []

    def make() -> None:
        try:
            made.append(
                dist.TCPStore(  # type: ignore[attr-defined]
                    host,
                    port,
                    is_master=is_here,
                    timeout=timedelta(seconds=timeout_s),
                    wait_for_workers=False,
                    multi_tenant=True,
                )
            )
        except (RuntimeError, ValueError) as error:
            problems.append(str(error).splitlines()[0])

    # torch waits for ever where another program listens and is silent, and writes its stack where
    # nobody listens.
    with _silent_stderr():
        # A daemon: one that waits for ever does not keep the process from ending.
        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        thread.join(timeout_s)
    if made:
        return made[0]
    problem = problems[0] if problems else f"no answer within {timeout_s:g} s"
    raise RankError(
        f"the ranks cannot meet at {host}:{port} (MASTER_ADDR and MASTER_PORT): {problem}; start "
        "rank 0 too, and give all ranks an address of its machine and a port that is free there"
    )


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard all that the block, even its C++ code, writes to stderr."""
    sys.stderr.flush()
    own, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(nothing)


def _seconds(variable: str, default: float) -> float:
    """Return the seconds in an environment variable; RankError if it is no positive number."""
    text = os.environ.get(variable, "") or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e9:
        raise RankError(f"{variable} is {text!r}; it must be a number of seconds above 0")
    return seconds


def _check_backend() -> None:
    """Raise RankError if the caller's process group has no collectives of tensors on the CPU."""
    backend = dist.get_backend_config()
    if "cpu:" not in backend:
        raise RankError(
            f"torch.distributed was initialised with the backend {backend!r}, which has no "
            'collectives of tensors on the CPU; initialise it with "cpu:gloo,cuda:nccl", or leave '
            "that to foretaste"
        )


def _facts() -> dict[str, object]:
    """Return versions and settings of this process that all ranks must share."""
    return {
        "foretaste": foretaste.__version__,
        "torch": torch.__version__,
        "numpy": ".".join(version("numpy").split(".")[:2]),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "the command": " ".join(sys.argv[1:]),
        # Sums on a CPU depend on it in their last digits, and metrics must agree bit by bit.
        "the number of threads": torch.get_num_threads(),
    }
