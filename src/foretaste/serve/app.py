"""The ASGI application of one worker, with its routes; Uvicorn makes it in the worker's process."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from time import monotonic, monotonic_ns, time
from typing import Any, TypeVar

import torch
from prometheus_client.multiprocess import mark_process_dead
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from foretaste.errors import ForetasteError
from foretaste.serve import page
from foretaste.serve.batching import Batcher, Job, expired
from foretaste.serve.config import ServeConfig
from foretaste.serve.errors import HANDLERS, ServiceError, overloaded
from foretaste.serve.events import Event, EventStore
from foretaste.serve.guard import Guard
from foretaste.serve.models import ModelStore, ServedModel
from foretaste.serve.openapi import ENDPOINTS, document
from foretaste.serve.schemas import (
    EventsBody,
    HistoryQuery,
    RecommendBody,
    ReloadBody,
    SearchQuery,
    SimilarBody,
    WithdrawBody,
)
from foretaste.serve.telemetry import MULTIPROCESS, Metrics, Telemetry, log, log_by_lines
from foretaste.serve.workers import State, Workers, is_alive

# Constants, and no options: nothing that was measured was answered sooner with others.
_BATCH_USERS = 256
"""Users at which a batch is full; a request is never divided."""

_BATCH_WAIT_S = 0.002
"""Longest wait for a batch of the size of the last one, counted from the end of that batch."""

_LOOK_EVERY_S = 1.0
"""Time between two checks of the paths of the runs."""

_ASK_EVERY_S = 0.05
"""Time between two checks of the states of the other workers."""

_END_AFTER_S = 5.0
"""Time after which a worker ends that cannot load its runs; its successor then tries again."""

# Python's default is 5 ms, which the event loop would wait for the thread that scores.
_SWITCH_INTERVAL_S = 0.0005

_JSON = "application/json"
_Body = TypeVar("_Body", bound=BaseModel)


class Service:
    """The runs of a worker, their queue and the routes."""

    def __init__(
        self,
        store: ModelStore,
        config: ServeConfig,
        workers: Workers,
        *,
        when_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """``when_ready`` is a callback for the time when the runs are loaded."""
        self.store = store
        self.event_store = None if config.events is None else EventStore(config.events)
        self.config = config
        self.metrics = Metrics(store)
        self.batcher = Batcher(
            queue_requests=config.queue_requests,
            batch_users=_BATCH_USERS,
            wait_s=_BATCH_WAIT_S,
            observe=self.metrics.note_batch,
        )
        self._workers = workers
        self._when_ready = when_ready
        self._state = State()
        """State of this worker, which the others read."""
        self._refused: Sequence[object] = ()
        """Result of `ModelStore.look` for files that could not be loaded."""
        self._openapi = to_json(document(store.names))
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[None] | None = None
        """The reload that waits for its turn, if there is one."""

    async def start(self) -> None:
        """Load the runs and begin to answer; called once, in the event loop of the requests."""
        self.batcher.start()
        if self.event_store is not None:
            self.event_store.start()
        self._write(looked_ns=monotonic_ns())
        await asyncio.to_thread(self.store.load)
        # PyTorch sets up each thread at its first operation, so the scoring thread answers once.
        for served in self.store.models:
            warm = Job((served, "warm"), served.warm, None, num_users=1, deadline=math.inf)
            await self.batcher.submit(warm)
        self._when_ready()
        self._write(answers=True)
        log("load", digests=self._digests())
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Answer the waiting requests and write the waiting events, then end the threads."""
        self._watching.cancel()
        await self.batcher.close()
        if self.event_store is not None:
            await asyncio.to_thread(self.event_store.close)

    def app(self) -> ASGIApp:
        """The application, with checks of token and Host, and with metrics."""
        routes = [
            *(_route(one.path, getattr(self, name), one.method) for name, one in ENDPOINTS.items()),
            _route("/metrics", self.metrics_text),
            _route("/openapi.json", self.openapi),
            *(_route(path, page.respond) for path in page.FILES),
        ]
        starlette = Starlette(routes=routes, exception_handlers=HANDLERS)
        # Starlette would redirect /healthz/ to the host in the request's own Host header.
        starlette.router.redirect_slashes = False
        guarded = Guard(starlette, self.config)
        counted = Telemetry(guarded, self.metrics, access_log=self.config.access_log)

        async def with_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._live if scope["type"] == "lifespan" else counted)(scope, receive, send)

        return with_lifespan

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start and close by ASGI's lifespan protocol; connections are accepted in between."""
        await receive()
        try:
            await self.start()
        except Exception as error:
            if any(state.answers for state in self._workers.read()):
                # If this worker told Uvicorn that it failed, Uvicorn would end all workers.
                log("load_failed", message=str(error))
                await asyncio.sleep(_END_AFTER_S)
                os._exit(1)
            self._workers.fail(str(error) or repr(error))
            if not isinstance(error, ForetasteError):
                raise
            await send({"type": "lifespan.startup.failed"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def recommend(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            body = await self._read(request, RecommendBody)
            served = self.store.get(body.model)
            served.check_types(body)
            served.check_rules(body)
            content, lists = await self._answer(
                request, "recommend", body, len(body.users), served, events=self.event_store
            )
        self.metrics.note_lists(lists)
        return Response(content, media_type=_JSON)

    async def events(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            store = self._writable_events()
            body = await self._read(request, EventsBody)
            served = self.store.get(None)
            served.check_types(body)
            now = time()
            events = [
                Event(
                    str(one.event_id),
                    str(one.user_id),
                    str(one.item_id),
                    now if one.time is None else one.time,
                    one.event_type,
                )
                for one in body.events
            ]
            num_unknown = served.count_unknown([one.item_id for one in body.events])
            num_new = await asyncio.wrap_future(store.add(events))
        counts = {"new": num_new, "repeated": len(events) - num_new}
        self.metrics.note_events(counts)
        return _response(counts | {"unknown_items": num_unknown})

    async def withdraw(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            store = self._writable_events()
            body = await self._read(request, WithdrawBody)
            ids = {str(one) for one in body.event_ids}
            num_withdrawn = await asyncio.wrap_future(store.withdraw(sorted(ids)))
        self.metrics.note_events({"withdrawn": num_withdrawn})
        return _response({"withdrawn": num_withdrawn, "not_kept": len(ids) - num_withdrawn})

    def _writable_events(self) -> EventStore:
        """The store of events; ServiceError without --events, or if too many wait to be written."""
        store = self.event_store
        if store is None:
            raise ServiceError(404, "no_events", "no events are kept here: start with --events")
        if store.num_waiting >= self.config.queue_requests:
            raise overloaded()
        return store

    async def similar(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            body = await self._read(request, SimilarBody)
            self.store.get(body.model).check_types(body)
            content = await self._answer(request, "similar", body, len(body.item_ids))
        return Response(content, media_type=_JSON)

    async def items(self, request: Request) -> Response:
        return await self._found(request, "items", SearchQuery)

    async def history(self, request: Request) -> Response:
        return await self._found(request, "history", HistoryQuery, events=self.event_store)

    async def models(self, request: Request) -> Response:
        models = [served.describe() for served in self.store.models]
        return _response({"models": models, "reload_failed": self._state.failed})

    async def reload(self, request: Request) -> Response:
        """Reload the runs in all workers.

        Requests are answered meanwhile by the runs loaded before. ServiceError if a worker could
        not load a run.
        """
        async with _deadline(self.config.deadline_s):
            await self._read(request, ReloadBody)
        asked = monotonic_ns()
        self._write(asked_ns=asked)
        await self._reload_here()
        # Wait also for a worker that still starts: it may have read the earlier run.
        while any(state.looked_ns < asked for state in self._workers.read()):
            await asyncio.sleep(_ASK_EVERY_S)
        for state in self._workers.read():
            if state.failed is not None:
                raise ServiceError(409, "reload_failed", state.failed)
        return await self.models(request)

    async def _watch(self) -> None:
        """Reload whenever a path leads to another run, or another worker was asked to reload."""
        parent = parent_process()  # None in a service of one process
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if parent is not None and not parent.is_alive():
                signal.raise_signal(signal.SIGTERM)  # Uvicorn's workers outlive a killed parent
                return
            if self._reloading.locked():
                continue
            try:
                asked_ns = max(state.asked_ns for state in self._workers.read())
                found = await asyncio.to_thread(self.store.look)
                if asked_ns > self._state.looked_ns or (found and found != self._refused):
                    await self._reload_here()
                elif self._refused and not found:  # the paths lead back to the loaded runs
                    self._refused = ()
                    self._write(failed=None)
            except Exception as error:
                log("watch_failed", message=repr(error))

    async def _reload_here(self) -> None:
        """Reload in this worker. All requests during a reload share the next one."""
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload_in_turn())
        await asyncio.shield(self._next_reload)

    async def _reload_in_turn(self) -> None:
        async with self._reloading:
            self._next_reload = None
            began, failed, self._refused = monotonic_ns(), None, ()
            found = await asyncio.to_thread(self.store.look)
            try:
                await asyncio.to_thread(self.store.load)
                log("reload", digests=self._digests())
            except Exception as error:
                failed, self._refused = str(error) or repr(error), found
                log("reload_failed", message=failed)
            self.metrics.reloads.labels("done" if failed is None else "failed").inc()
            self._write(looked_ns=began, failed=failed)

    def _write(self, **changes: Any) -> None:
        """Change and publish the state of this worker."""
        self._state = replace(self._state, **changes)
        self._workers.write(self._state)

    def _digests(self) -> dict[str, str]:
        return {served.name: served.digest for served in self.store.models}

    async def healthz(self, request: Request) -> Response:
        return _response({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        return _response({"status": "ready"})

    async def metrics_text(self, request: Request) -> Response:
        self.metrics.queue.set(self.batcher.num_waiting)  # batches set it, and may be long ago
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type=_JSON)

    async def _read(self, request: Request, kind: type[_Body]) -> _Body:
        """The body of a request; ServiceError if it is too long or invalid."""
        _check_json(request)
        if "upgrade" in request.headers:  # the server then reads no body
            raise ServiceError(
                400, "bad_request", "send no Upgrade header: the service speaks HTTP/1.1 only"
            )
        limit = self.config.max_body_bytes
        too_long = ServiceError(413, "body_too_large", f"the body is longer than {limit} bytes")
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise too_long
        chunks, num_bytes = [], 0
        async for chunk in request.stream():
            chunks.append(chunk)
            num_bytes += len(chunk)
            if num_bytes > limit:
                raise too_long
        return _valid(partial(kind.model_validate_json, b"".join(chunks)))

    async def _found(
        self, request: Request, verb: str, kind: type[_Body], **options: Any
    ) -> Response:
        query = _valid(partial(kind.model_validate, dict(request.query_params)))
        async with _deadline(self.config.deadline_s):
            content = await self._answer(request, verb, query, 1, **options)
        return Response(content, media_type=_JSON)

    async def _answer(
        self,
        request: Request,
        verb: str,
        body: Any,
        num_users: int,
        served: ServedModel | None = None,
        **options: Any,
    ) -> Any:
        served = served or self.store.get(body.model)
        request.scope["foretaste"].update(model=served.name, digest=served.digest, users=num_users)
        return await self.batcher.submit(
            Job(
                group=(served, verb),
                answer=partial(getattr(served, verb), **options),
                body=body,
                num_users=num_users,
                deadline=monotonic() + self.config.deadline_s,
            )
        )


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """Raise ServiceError in a block that takes longer; a job that still waits is then skipped."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise expired() from None


def _route(
    path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str = "GET"
) -> Route:
    async def noted(request: Request) -> Response:
        request.scope["foretaste"]["route"] = path
        return await endpoint(request)

    return Route(path, noted, methods=[method])


def _check_json(request: Request) -> None:
    """Raise ServiceError unless the content type is JSON."""
    # A page of another site cannot send this type without a permission that it does not get.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise ServiceError(415, "unsupported_media_type", f"send content-type: {_JSON}")


def _valid(validate: Callable[[], _Body]) -> _Body:
    try:
        return validate()
    except ValidationError as error:
        raise ServiceError.invalid(error) from error


def _response(content: Any) -> Response:
    return Response(to_json(content), media_type=_JSON)


def app_of_worker(store: ModelStore, config: ServeConfig, directory: Path) -> ASGIApp:
    """The application of these runs; ``directory`` has the states of all workers."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    log_by_lines(logging.WARNING)
    if config.workers > 1:
        _drop_gauges_of_the_dead(Path(os.environ[MULTIPROCESS]))
        if "OMP_NUM_THREADS" not in os.environ:  # the workers share the cores
            torch.set_num_threads(max(1, torch.get_num_threads() // config.workers))
    return Service(store, config, Workers(directory), when_ready=_freeze).app()


def _freeze() -> None:
    # A full garbage collection takes 0.2 s, mostly for objects of PyTorch that live for ever.
    gc.collect()
    gc.freeze()


def _drop_gauges_of_the_dead(directory: Path) -> None:
    """Remove the gauges of killed workers from the sum over all workers."""
    for path in directory.glob("gauge_live*_*.db"):
        process = int(path.stem.rpartition("_")[2])
        if not is_alive(process):
            mark_process_dead(process, str(directory))  # type: ignore[no-untyped-call]
