"""Heartbeats of the ranks: one that ends or falls silent ends them all, with one message.

The timeouts of collectives are no help: short ones would break a slow save, and after long ones
nobody is named.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from foretaste._util.process import CaughtSignals, Launch, started_at
from foretaste._util.terminal import EXIT_MISTAKE, print_error
from foretaste.errors import Interrupted, RankError, Report, with_report
from foretaste.launch.rendezvous import (
    Meeting,
    Member,
    client,
    heartbeat_of,
    is_in_agent,
    meet,
    seconds_of,
)

TIMEOUT = "FORETASTE_HEARTBEAT_TIMEOUT_S"
"""Environment variable: seconds of silence after which a rank counts as lost."""

# torchrun kills the others 30 s after a rank has ended: until then it must be found and named.
_TIMEOUT_S = 20.0
_GRACE_S = 5.0
"""Seconds that this process has to end by itself once another rank is lost."""

_NO_TIMEOUT = timedelta(days=1)
"""Of a collective: others may wait while one saves, prepares or fits in one pass."""

_LEFT = "left"


class Heartbeats:
    """Sends this rank's heartbeats and watches those of the others, in two daemon threads.

    A rank is lost when its process on this machine has ended, or when its heartbeats stand still
    for as long as `TIMEOUT` says, by the clock of the one that watches. Then one rank prints the
    message, and the process ends even where its main thread waits in a collective.
    """

    def __init__(self, meeting: Meeting) -> None:
        self.members = meeting.members
        self.own = meeting.members[meeting.launch.rank]
        self.timeout_s = seconds_of(TIMEOUT, _TIMEOUT_S)
        self.advice = ""
        """Ends the message of a rank that is lost: how to go on."""
        self.failure: str | None = None
        """Why all ranks end, once they do."""
        self._has_failed, self._has_left, self._wake = (threading.Event() for _ in range(3))
        self._is_leaving = False
        self._others = [one for one in self.members if one is not self.own]
        self._meeting = meeting
        self._store = client(meeting.launch, self.timeout_s)
        self._answered_at = time.monotonic()
        self._threads = [
            threading.Thread(target=work, name=f"foretaste {work.__name__}", daemon=True)
            for work in (self._beat, self._watch_store)
        ]
        for thread in self._threads:
            thread.start()

    def explain(self, error: RuntimeError) -> RankError:
        """The error that a collective failed with, once it is known which rank is lost."""
        with CaughtSignals(lambda number: None):  # torchrun sends SIGTERM meanwhile
            self._wake.set()
            self._has_failed.wait(self.timeout_s + _GRACE_S)
        if self.failure is not None:
            return RankError(self.failure)
        return RankError(f"the ranks lost each other: {str(error).splitlines()[0]}")

    def fail(self, error: BaseException) -> None:
        """Let the others know that this rank ends by an error, and agree which of them prints it.

        What all ranks raise alike is left to the first of them.
        """
        if self._is_leaving:  # all end alike
            return
        self._wake.set()
        self._has_failed.wait(0.5 if self.own.rank == 0 else 2.0)
        is_printed = self.failure is not None
        if self.failure is None:
            self.failure = str(error) or type(error).__name__
            is_printed = not self._is_first_to_report(self.failure)
        with_report(error, Report(is_printed, f"{self.own}: " if self.own.rank else ""))

    def leave_together(self) -> None:
        """End the heartbeats once all ranks have done their part, such as the first its saving."""
        try:
            dist.all_reduce(torch.zeros(()))
        except RuntimeError as error:
            raise self.explain(error) from error
        self._is_leaving = True
        try:
            self._store.set(self._key(self.own), _LEFT)
        except RuntimeError:
            self._has_left.set()  # the store went with the rank that held it, which was done too

    def remember(self, name: str, text: str) -> None:
        """Keep a text in the store, which torchrun holds while it restarts the ranks."""
        self._store.set(f"foretaste/kept/{name}", text)

    def remembered(self, name: str) -> str | None:
        """The text kept under a name, perhaps by the process in this one's place before it."""
        key = f"foretaste/kept/{name}"
        return self._store.get(key).decode() if self._store.check([key]) else None

    def stop(self) -> None:
        """End the threads; where the store lives here, once the others have left it."""
        if self._meeting.has_store:
            ends = time.monotonic() + _GRACE_S
            while time.monotonic() < ends and not self._have_others_left():
                time.sleep(0.05)
        self._has_left.set()
        self._wake.set()
        self._threads[0].join(self.timeout_s)

    def _beat(self) -> None:
        number, seen_at = 0, time.monotonic()
        seen: dict[int, tuple[bytes, float]] = {}
        while not self._has_left.is_set():
            number += 1
            ended = [one for one in self._others if self._has_ended(one)]
            try:
                if not self._is_leaving:
                    self._store.set(self._key(self.own), str(number))
                values = self._values()
                failed = self._store.check([self._name("failed")])
                if failed:
                    self._end(self._failure_of_another(), prints=False)
                    return
            except RuntimeError:
                self._lose_store()
                return
            now = time.monotonic()
            if now - seen_at > self.timeout_s / 2:  # this process itself stood still
                seen = {}
            seen_at = self._answered_at = now
            for one in self._others:
                value = values[one.rank]
                last, since = seen.get(one.rank, (None, now))
                seen[one.rank] = (value, since if value == last else now)
                if value == _LEFT.encode():
                    continue
                lost = f"{one} ended" if one in ended else ""
                if not lost and now - since > self.timeout_s and value == last:
                    lost = f"{one} has not been heard of for {self.timeout_s:g} s"
                if lost:
                    self._end(lost, prints=self._is_first_to_report(lost))
                    return
            if self._wake.wait(self.timeout_s / 10):
                self._has_left.wait(0.1)

    def _watch_store(self) -> None:
        """End this process where the store does not answer, so that `_beat` waits for ever."""
        pause_s = self.timeout_s / 20
        looked_at = time.monotonic()
        while not self._has_left.wait(pause_s):
            now = time.monotonic()
            if now - looked_at > self.timeout_s / 2:
                self._answered_at = now
            looked_at = now
            if now - self._answered_at > self.timeout_s:
                self._lose_store()
                return

    def _lose_store(self) -> None:
        if not self._is_leaving:
            host, port = self._meeting.launch.address
            holder = f"torchrun at {host}:{port}" if is_in_agent() else str(self.members[0])
            self._end(f"{holder} ended or does not answer", prints=self._reports_without_store())

    def _end(self, failure: str, *, prints: bool) -> None:
        """End this process, by its main thread or without it."""
        if self.failure is None:
            self.failure = failure
            if prints:
                print_error(f"error: {failure}; all ranks end{self.advice}", sys.__stderr__)
            self._has_failed.set()
        if not self._has_left.wait(_GRACE_S):
            os._exit(EXIT_MISTAKE)

    def _is_first_to_report(self, failure: str) -> bool:
        """True where no other rank has said why all end; from then on the others know."""
        try:
            is_first: bool = self._store.add(self._name("reported"), 1) == 1
            if is_first:
                said = {"rank": self.own.rank, "failure": failure}
                self._store.set(self._name("failed"), json.dumps(said))
            return is_first
        except RuntimeError:
            return self._reports_without_store()

    def _reports_without_store(self) -> bool:
        """True of the first rank that is on another machine than the store, else of the second."""
        home, *others = self.members
        away = [one for one in others if one.machine != home.machine]
        return self.own is (away or others)[0]

    def _failure_of_another(self) -> str:
        said = json.loads(self._store.get(self._name("failed")))
        return f"{self.members[said['rank']]}: {said['failure']}"

    def _has_ended(self, one: Member) -> bool:
        return one.machine == self.own.machine and started_at(one.process) != one.started_at

    def _values(self) -> dict[int, bytes]:
        values = self._store.multi_get([self._key(one) for one in self._others])
        return {one.rank: value for one, value in zip(self._others, values, strict=True)}

    def _have_others_left(self) -> bool:
        try:
            return all(value == _LEFT.encode() for value in self._values().values())
        except RuntimeError:
            return True

    def _key(self, one: Member) -> str:
        return heartbeat_of(self._meeting.token, one.rank)

    def _name(self, name: str) -> str:
        return f"{self._meeting.token}/{name}"


@contextmanager
def process_group(started: Launch) -> Iterator[Heartbeats]:
    """The process group of the ranks that torchrun started, each watched until all have left it.

    Where the caller has initialised one it is that, and stays. Raises RankError where they do not
    come, differ or are lost.
    """
    meeting = meet(started)
    heartbeats = Heartbeats(meeting)
    has_gpus, is_callers = torch.cuda.is_available(), dist.is_initialized()
    try:
        try:
            if not is_callers:
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if has_gpus else "gloo",
                    store=PrefixStore(f"{meeting.token}/group", meeting.store),
                    rank=started.rank,
                    world_size=started.size,
                    timeout=_NO_TIMEOUT,
                )
        except RuntimeError as error:
            raise heartbeats.explain(error) from error
        try:
            yield heartbeats
        except Interrupted as error:  # all were, once their state was saved
            with_report(error, Report(is_printed=started.rank > 0))
            heartbeats.leave_together()
            raise
        heartbeats.leave_together()
        if not is_callers:
            dist.destroy_process_group()
    except BaseException as error:
        with CaughtSignals(lambda number: None):  # torchrun sends SIGTERM as soon as one ends
            heartbeats.fail(error)
            # NCCL's may wait for those that are lost
            if not (is_callers or has_gpus) and dist.is_initialized():
                dist.destroy_process_group()
        raise
    finally:
        heartbeats.stop()
