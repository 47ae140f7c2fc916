"""Meeting of the ranks, before their process group: who they are, and that they are alike."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from socket import gethostname
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
import torch.distributed as dist

import foretaste
from foretaste._util.process import CaughtSignals, Launch, machine, started_at
from foretaste.errors import Interrupted, RankError, Report, with_report
from foretaste.ops.ranks import difference

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

JOIN_TIMEOUT = "FORETASTE_JOIN_TIMEOUT_S"
"""Environment variable: seconds that ranks wait for each other at the start."""

_JOIN_S = 300.0
_PAUSE_S = 0.05
_FAREWELL_S = 5.0
"""Seconds that the process with the store stays for the others to read why it ends."""

_TOKEN = "foretaste/token"


@dataclass(frozen=True)
class Member:
    """A rank, and the process that it is."""

    rank: int
    host: str
    machine: str
    process: int
    started_at: str

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.process} on {self.host})"


@dataclass(frozen=True)
class Meeting:
    """Ranks that have met in a store, under a token of their own."""

    launch: Launch
    store: Store
    token: str
    members: Sequence[Member]

    @property
    def has_store(self) -> bool:
        """True of the process that the store lives in; under torchrun it is none of the ranks."""
        return self.launch.rank == 0 and not is_in_agent()


def seconds_of(variable: str, default: float) -> float:
    """Seconds that an environment variable sets; RankError where it is no positive number."""
    text = os.environ.get(variable, "") or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e9:
        raise RankError(f"{variable} is {text!r}; it must be a number of seconds above 0")
    return seconds


def client(launch: Launch, timeout_s: float, *, serves: bool = False) -> Store:
    """A new connection to the store of the ranks; the one that ``serves`` holds it."""
    host, port = launch.address
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            host,
            port,
            is_master=serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (RuntimeError, ValueError) as error:  # a host that is unknown, a port that is taken
        what = "cannot be opened" if serves else f"does not answer within {timeout_s:g} s"
        failure = RankError(
            f"the store of the ranks at {host}:{port} {what}: is rank 0 started, and the address "
            f"its own? ({str(error).splitlines()[0]})"
        )
        raise with_report(failure, Report(is_printed=launch.local_rank > 0)) from error


def meet(launch: Launch) -> Meeting:
    """Wait until all ranks have come and found each other alike.

    Raises RankError, the same for all, where some do not come in time or differ; Interrupted, a
    KeyboardInterrupt, after Ctrl-C, SIGTERM or SIGHUP.
    """
    limit_s = seconds_of(JOIN_TIMEOUT, _JOIN_S)
    store = client(launch, limit_s, serves=launch.rank == 0 and not is_in_agent())
    member = Member(
        launch.rank, gethostname(), machine(), os.getpid(), started_at(os.getpid()) or ""
    )
    own = {"id": uuid4().hex, "member": vars(member), "facts": _facts()}
    with CaughtSignals(lambda number: None) as signals:
        rendezvous = _Rendezvous(launch, store, own, signals, limit_s)
        token, go = rendezvous.hold() if launch.rank == 0 else rendezvous.join()
    if go["error"] is not None:
        raise with_report(RankError(go["error"]), Report(is_printed=launch.rank > 0))
    return Meeting(launch, store, token, [Member(**one["member"]) for one in go["all"]])


@dataclass
class _Rendezvous:
    """The meeting of the ranks in a store.

    Keys outlive a restart of the ranks, so all are under a token that rank 0 draws each time; a
    rank has met the others once it reads its own id among theirs.
    """

    launch: Launch
    store: Store
    own: dict[str, Any]
    signals: CaughtSignals
    limit_s: float

    def hold(self) -> tuple[str, dict[str, Any]]:
        """Draw the token, wait for the others, and let them know."""
        token = self.own["id"]
        keys = {rank: f"{token}/{rank}" for rank in range(1, self.launch.size)}
        self.store.set(_TOKEN, token)
        self._wait(lambda: not self._missing(keys))
        missing, error = self._missing(keys), None
        here = {rank: json.loads(self.store.get(key)) for rank, key in keys.items()
                if rank not in missing}  # fmt: skip
        everyone = [self.own, *here.values()]
        if missing:
            names = ", ".join(map(str, missing))
            error = (
                f"{len(everyone)} of {self.launch.size} ranks came within {self.limit_s:g} s; "
                f"missing: {names}. Start all nodes within that time, or set {JOIN_TIMEOUT}"
            )
            if self.signals.last is not None:
                error = f"interrupted; of {self.launch.size} ranks these had not come: {names}"
        elif different := difference(
            [one["facts"] for one in everyone], [Member(**one["member"]) for one in everyone]
        ):
            error = f"{different}. All ranks need the same; install or set it alike on all machines"
        self.store.set(heartbeat_of(token, 0), "0")
        self.store.set(f"{token}/go", json.dumps({"error": error, "all": everyone}))
        if error is not None and not is_in_agent():
            self._wait_until_read(token, len(here))
        if self.signals.last is not None:
            raise Interrupted(error or "interrupted", self.signals.last)
        return token, {"error": error, "all": everyone}

    def join(self) -> tuple[str, dict[str, Any]]:
        """Follow the token of rank 0 until it has let this rank in."""
        token, go = "", None

        def is_in() -> bool:
            nonlocal token, go
            found = self.store.get(_TOKEN).decode() if self.store.check([_TOKEN]) else token
            if found != token:
                token = found
                self.store.set(heartbeat_of(token, self.launch.rank), "0")
                self.store.set(f"{token}/{self.launch.rank}", json.dumps(self.own))
            if token and self.store.check([f"{token}/go"]):
                said = json.loads(self.store.get(f"{token}/go"))
                go = said if self.own in said["all"] else None
            return go is not None

        # Rank 0 began to wait before or after this one, and it is rank 0 that says who is missing.
        self._wait(is_in, patience=2.0)
        if go is not None:
            self.store.add(f"{token}/read", 1)
            return token, go
        if self.signals.last is not None:
            error = Interrupted("interrupted; rank 0 had not come", self.signals.last)
            raise with_report(error, Report(is_printed=bool(token)))
        raise RankError(f"rank 0 of {self.launch.size} did not come within {2 * self.limit_s:g} s")

    def _wait(self, is_over: Callable[[], bool], patience: float = 1.0) -> None:
        ends = time.monotonic() + patience * self.limit_s
        while not is_over() and self.signals.last is None and time.monotonic() < ends:
            time.sleep(_PAUSE_S)

    def _wait_until_read(self, token: str, num_readers: int) -> None:
        ends = time.monotonic() + _FAREWELL_S
        while self.store.add(f"{token}/read", 0) < num_readers and time.monotonic() < ends:
            time.sleep(_PAUSE_S)

    def _missing(self, keys: Mapping[int, str]) -> list[int]:
        return [rank for rank, key in keys.items() if not self.store.check([key])]


def is_reported(launch: Launch, failure: str) -> bool:
    """True where another rank has ended by the same error, and prints it."""
    try:
        store = client(launch, _FAREWELL_S)
        return bool(store.add(f"foretaste/reported/{launch.attempt}/{failure}", 1) > 1)
    except (RankError, RuntimeError):
        return False  # there is no store to ask


def heartbeat_of(token: str, rank: int) -> str:
    """The key of a rank's heartbeats; it is there before the ranks have met."""
    return f"{token}/heartbeat/{rank}"


def _facts() -> dict[str, Any]:
    """Versions and settings of this process that all ranks must share."""
    return {
        "foretaste": foretaste.__version__,
        "torch": torch.__version__,
        "numpy": ".".join(version("numpy").split(".")[:2]),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "the command": " ".join(sys.argv[1:]),
        "the number of threads": torch.get_num_threads(),
    }


def is_in_agent() -> bool:
    """True where torchrun itself holds the store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
