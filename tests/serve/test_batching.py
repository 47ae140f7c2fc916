"""The queue: jobs that are answered together, wait, are refused, or never start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from foretaste.serve.batching import Batcher, Job

LIMIT_S = 20.0


class Scorer:
    """Answers each body with itself; waits for ``go``, and remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Semaphore(0)

    def __call__(self, bodies: Sequence[Any]) -> list[Any]:
        self.calls.append(list(bodies))
        self.begun.release()
        assert self.go.wait(LIMIT_S)
        if "bad" in bodies:
            raise ValueError("bad")
        return [f"answer to {body}" for body in bodies]

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=LIMIT_S)


def job(
    scorer: Scorer, body: Any, group: Any = "one", num_users: int = 1, ends_s: float = 60
) -> Job:
    return Job(
        group=group, answer=scorer, body=body, num_users=num_users, deadline=monotonic() + ends_s
    )


async def occupied(batcher: Batcher, scorer: Scorer) -> asyncio.Future[Any]:
    """The first job; it occupies the thread until the scorer's ``go``."""
    scorer.go.clear()
    first = batcher.submit(job(scorer, 0))
    await scorer.has_begun()
    return first


def run(
    scenario: Callable[[Batcher, Scorer], Awaitable[None]], **settings: Any
) -> list[tuple[int, int, int]]:
    """Run a scenario with a started batcher; returns the sizes of the batches."""
    sizes: list[tuple[int, int, int]] = []
    settings = {"queue_requests": 4, "batch_users": 100, "wait_s": 0.0} | settings

    async def main() -> None:
        batcher = Batcher(**settings, observe=lambda *size: sizes.append(size))
        batcher.start()
        scorer = Scorer()
        async with asyncio.timeout(LIMIT_S):
            await scenario(batcher, scorer)
            await batcher.close()

    asyncio.run(main())
    return sizes


def test_requests_that_arrive_while_the_thread_works_share_a_batch() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        first = await occupied(batcher, scorer)
        others = [batcher.submit(job(scorer, number)) for number in (1, 2, 3)]
        scorer.go.set()
        assert await asyncio.gather(first, *others) == [f"answer to {n}" for n in range(4)]
        assert scorer.calls == [[0], [1, 2, 3]]

    assert run(scenario) == [(1, 1, 0), (3, 3, 0)]


def test_groups_are_answered_apart_and_batches_end_with_enough_users() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        first = await occupied(batcher, scorer)
        others = [
            batcher.submit(job(scorer, 1, "a", num_users=2)),
            batcher.submit(job(scorer, 2, "b", num_users=2)),
            batcher.submit(job(scorer, 3, "a", num_users=2)),
            batcher.submit(job(scorer, 4, "a", num_users=9)),
        ]
        scorer.go.set()
        await asyncio.gather(first, *others)
        assert scorer.calls == [[0], [1, 3], [2], [4]]

    assert run(scenario, batch_users=5) == [(1, 1, 0), (3, 6, 1), (1, 9, 0)]


def test_requests_that_nobody_awaits_are_not_started() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        first = await occupied(batcher, scorer)
        late = batcher.submit(job(scorer, "late", ends_s=0))
        gone = batcher.submit(job(scorer, "gone"))
        gone.cancel()
        last = batcher.submit(job(scorer, "last"))
        scorer.go.set()
        assert [await first, await last] == ["answer to 0", "answer to last"]
        assert not late.done()
        assert scorer.calls == [[0], ["last"]]

    assert run(scenario) == [(1, 1, 0), (1, 1, 0)]


def test_a_request_that_fails_fails_alone() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        first = await occupied(batcher, scorer)
        others = [batcher.submit(job(scorer, body)) for body in (1, "bad", 2)]
        scorer.go.set()
        await first
        found = await asyncio.gather(*others, return_exceptions=True)
        assert (found[0], found[2]) == ("answer to 1", "answer to 2")
        assert isinstance(found[1], ValueError)

    run(scenario)


def test_a_batch_waits_for_as_many_requests_as_the_last_batch_had() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        first = await occupied(batcher, scorer)
        two = [batcher.submit(job(scorer, number)) for number in (1, 2)]
        scorer.go.set()
        await asyncio.gather(first, *two)
        # The last batch had two: the batch waits for one more, much longer than this test may take.
        alone = batcher.submit(job(scorer, 3))
        await asyncio.sleep(0.05)
        assert not alone.done()
        joined = batcher.submit(job(scorer, 4))
        await asyncio.gather(alone, joined)
        assert scorer.calls == [[0], [1, 2], [3, 4]]

    run(scenario, wait_s=60.0)


def test_after_a_pause_a_batch_does_not_wait() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        first = await occupied(batcher, scorer)
        two = [batcher.submit(job(scorer, number)) for number in (1, 2)]
        scorer.go.set()
        await asyncio.gather(first, *two)
        await asyncio.sleep(0.02)
        assert await batcher.submit(job(scorer, 3)) == "answer to 3"

    run(scenario, wait_s=0.01)


def test_waiting_requests_are_answered_before_the_end() -> None:
    async def scenario(batcher: Batcher, scorer: Scorer) -> None:
        taken = [await occupied(batcher, scorer)]
        taken += [batcher.submit(job(scorer, number)) for number in (1, 2, 3)]
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        scorer.go.set()
        await asyncio.gather(*taken, closing)

    assert run(scenario, batch_users=1) == [(1, 1, 0), (1, 1, 2), (1, 1, 1), (1, 1, 0)]
