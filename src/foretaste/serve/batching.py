"""Dynamic batching: a bounded queue of requests, and a thread that answers them in batches.

When the thread is free it takes the waiting requests. While requests keep coming, the thread first
waits a little, counted from the end of the last batch, until as many requests wait as that batch
had. A request that finds the thread idle never waits.
"""

# The thread waits so that the event loop can read requests, also on one core.

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from foretaste.serve.errors import ServiceError, overloaded_error


@dataclass(eq=False, slots=True)
class Job:
    """A request that waits for its answer."""

    group: Hashable
    """Jobs of one group are answered by one call."""
    answer: Callable[[Sequence[Any]], Sequence[Any]]
    """The group's function from the bodies of some jobs to their answers."""
    body: Any
    num_users: int
    deadline: float
    """Monotonic time after which the job is skipped."""
    future: asyncio.Future[Any] = field(init=False)
    """The future answer; set when the job is submitted."""


class Batcher:
    """Queue of jobs, and the thread that answers them in batches."""

    def __init__(
        self,
        *,
        queue_requests: int,
        batch_users: int,
        wait_s: float,
        observe: Callable[[int, int, int], None],
    ) -> None:
        """Tell ``observe`` the numbers of jobs and users of a batch, and of jobs still waiting."""
        self._limit = queue_requests
        self._batch_users = batch_users
        self._wait_s = wait_s
        self._observe = observe
        # The event loop appends, the thread takes from the left: a deque needs no lock for that.
        self._queue: deque[Job] = deque()
        self._wanted = 1
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)

    def start(self) -> None:
        """Begin to answer; called once, in the event loop that submits."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    def submit(self, job: Job) -> asyncio.Future[Any]:
        """Put a job into the queue; ServiceError if it is full."""
        if len(self._queue) >= self._limit:
            raise overloaded_error()
        job.future = self._loop.create_future()
        self._queue.append(job)
        if len(self._queue) >= self._wanted:
            self._wake.set()
        return job.future

    async def close(self) -> None:
        """Answer the waiting jobs, then end the thread."""
        self._is_closing = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        num_last, ended = 1, 0.0
        while True:
            self._await_jobs(1, None)
            self._await_jobs(num_last, ended + self._wait_s - monotonic())
            jobs = self._take()
            if not jobs:
                if self._is_closing:
                    return
                continue
            answers = self._answer_jobs(jobs)
            # Futures of asyncio belong to the loop: setting one from this thread would not wake it.
            self._loop.call_soon_threadsafe(deliver, jobs, answers)
            num_last, ended = len(jobs), monotonic()
            # Jobs refer to their run, and the thread may now wait for long: delete them, so that a
            # swapped run is freed.
            del jobs, answers

    def _await_jobs(self, number: int, timeout_s: float | None) -> None:
        """Wait for this number of jobs, or for the timeout if there is one."""
        if timeout_s is not None and timeout_s <= 0:
            return
        # Set the number before counting the queue. In the other order a job that arrives in between
        # would not set the event, and the thread would sleep although the jobs are there.
        self._wake.clear()
        self._wanted = number
        if len(self._queue) < number and not self._is_closing:
            self._wake.wait(timeout_s)

    def _take(self) -> list[Job]:
        """Return the jobs of the next batch, without cancelled and expired ones."""
        jobs: list[Job] = []
        num_users, now = 0, monotonic()
        while self._queue and num_users < self._batch_users:
            job = self._queue.popleft()
            if job.deadline > now and not job.future.cancelled():
                jobs.append(job)
                num_users += job.num_users
        if jobs:
            self._observe(len(jobs), num_users, len(self._queue))
        return jobs

    def _answer_jobs(self, jobs: Sequence[Job]) -> list[Any]:
        """Return the answer to each job, or its exception."""
        groups: dict[Hashable, list[int]] = {}
        for number, job in enumerate(jobs):
            groups.setdefault(job.group, []).append(number)
        answers: list[Any] = [None] * len(jobs)
        for numbers in groups.values():
            answer = jobs[numbers[0]].answer
            found = _answers_of(answer, [jobs[number].body for number in numbers])
            for number, one in zip(numbers, found, strict=True):
                answers[number] = one
        return answers


def _answers_of(answer: Callable[[Sequence[Any]], Sequence[Any]], bodies: list[Any]) -> list[Any]:
    """Return the answers or exceptions. If the bodies fail together, each is answered alone, so
    that one wrong request fails no other."""
    try:
        return list(answer(bodies))
    except Exception as error:
        if len(bodies) == 1:
            return [error]
        return [one for body in bodies for one in _answers_of(answer, [body])]


def deliver(jobs: Sequence[Job], answers: Sequence[Any]) -> None:
    """Set the futures of jobs to their answers or exceptions; runs in the event loop."""
    for job, answer in zip(jobs, answers, strict=True):
        if job.future.done():
            continue  # the deadline passed in the meantime
        if isinstance(answer, Exception):
            job.future.set_exception(answer)
        else:
            job.future.set_result(answer)


def expired_error() -> ServiceError:
    return ServiceError(504, "deadline_exceeded", "not answered within the deadline")
