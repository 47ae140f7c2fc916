"""The ASGI application of the service, with its routes."""

from __future__ import annotations

import asyncio
import json
import math
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Thread
from time import monotonic, time
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from foretaste._util.documents import Json
from foretaste._util.formatting import short_repr
from foretaste.serve import page
from foretaste.serve.batching import Batcher, Job, expired_error
from foretaste.serve.config import ServeConfig
from foretaste.serve.errors import HANDLERS, ServiceError, overloaded_error
from foretaste.serve.events import Event, EventStore
from foretaste.serve.guard import Guard
from foretaste.serve.log import log
from foretaste.serve.models import ServedModel
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
from foretaste.serve.store import ModelStore
from foretaste.serve.telemetry import Metrics, Telemetry

# These are constants and not options: no measured load was answered sooner with other values.
_BATCH_USERS = 256
"""Users at which a batch is full; a request is never divided."""

_BATCH_WAIT_S = 0.002
"""Longest wait for a batch of the size of the last one, counted from the end of that batch."""

LOOK_EVERY_S = 1.0
"""Time between two checks of the paths of the runs."""

_JSON = "application/json"
_Body = TypeVar("_Body", bound=BaseModel)
_Given = TypeVar("_Given")
_Asked = TypeVar("_Asked")
_Answered = TypeVar("_Answered")
_Result = TypeVar("_Result")


class Service:
    """The runs, their queue and the routes."""

    def __init__(
        self,
        store: ModelStore,
        config: ServeConfig,
        *,
        when_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Call ``when_ready`` once the runs are loaded."""
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
        self._when_ready = when_ready
        self.failure: Exception | None = None
        """The error that kept the service from starting."""
        self._reload_failed: str | None = None
        """Message of the last reload if it failed."""
        self._refused: Sequence[object] = ()
        """Result of `ModelStore.find_changes` for files that could not be loaded."""
        self._guard = Guard(self._routes(), config)
        self._openapi = to_json(document(store.names))
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[str | None] | None = None
        """The reload that waits to begin, if there is one."""

    async def start(self) -> None:
        """Load the runs and begin to answer; called once, in the event loop of the requests."""
        self.batcher.start()
        if self.event_store is not None:
            self.event_store.start()
        await _in_daemon(self.store.load)
        # PyTorch sets up each thread at its first operation, so the scoring thread answers once.
        for served in self.store.models:
            warm = Job((served, "warm"), served.warm, None, num_users=1, deadline=math.inf)
            await self.batcher.submit(warm)
        log("load", digests=self._digests())
        self._when_ready()
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Answer the waiting requests and write the waiting events, then end the threads."""
        self._watching.cancel()
        await self.batcher.close()
        if self.event_store is not None:
            await asyncio.to_thread(self.event_store.close)

    def _routes(self) -> ASGIApp:
        routes = [
            *(_route(one.path, getattr(self, name), one.method) for name, one in ENDPOINTS.items()),
            _route("/metrics", self.metrics_text),
            _route("/openapi.json", self.openapi),
            *(_route(path, page.respond) for path in page.FILES),
        ]
        starlette = Starlette(routes=routes, exception_handlers=HANDLERS)
        # Starlette would redirect /healthz/ to the host in the request's own Host header.
        starlette.router.redirect_slashes = False
        return starlette

    def app(self) -> ASGIApp:
        """Return the application, with checks of token and Host, and with metrics."""
        counted = Telemetry(self._guard, self.metrics, access_log=self.config.access_log)

        async def with_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._live if scope["type"] == "lifespan" else counted)(scope, receive, send)

        return with_lifespan

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start and close by ASGI's lifespan protocol; connections are accepted in between."""
        await receive()
        try:
            await self.start()
        except Exception as error:
            self.failure = error
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
            asked = served.look_up(body)
            answer = partial(served.recommend, events=self.event_store)
            content, lists = await self._answer(request, served, answer, asked, len(body.users))
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
            users = {str(one) for one in body.user_ids}
            num_by_id = await asyncio.wrap_future(store.withdraw(sorted(ids))) if ids else 0
            num_withdrawn = num_by_id
            if users:
                num_withdrawn += await asyncio.wrap_future(store.withdraw_users(sorted(users)))
        self.metrics.note_events({"withdrawn": num_withdrawn})
        return _response({"withdrawn": num_withdrawn, "not_kept": len(ids) - num_by_id})

    def _writable_events(self) -> EventStore:
        """Return the store of events; ServiceError without --events, or if too many are waiting."""
        store = self.event_store
        if store is None:
            raise ServiceError(404, "no_events", "no events are kept here: start with --events")
        if store.num_waiting >= self.config.queue_requests:
            raise overloaded_error()
        return store

    async def similar(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            body = await self._read(request, SimilarBody)
            served = self.store.get(body.model)
            served.check_types(body)
            content = await self._answer(request, served, served.similar, body, len(body.item_ids))
        return Response(content, media_type=_JSON)

    async def items(self, request: Request) -> Response:
        query = _valid(SearchQuery, SearchQuery.model_validate, dict(request.query_params))
        async with _deadline(self.config.deadline_s):
            served = self.store.get(query.model)
            content = await self._answer(request, served, served.items, query)
        return Response(content, media_type=_JSON)

    async def history(self, request: Request) -> Response:
        query = _valid(HistoryQuery, HistoryQuery.model_validate, dict(request.query_params))
        async with _deadline(self.config.deadline_s):
            served = self.store.get(query.model)
            answer = partial(served.history, events=self.event_store)
            content = await self._answer(request, served, answer, query)
        return Response(content, media_type=_JSON)

    async def models(self, request: Request) -> Response:
        models = [served.describe() for served in self.store.models]
        failed = self._reload_failed or self._guard.token_failed
        return _response({"models": models, "reload_failed": failed})

    async def reload(self, request: Request) -> Response:
        """Reload the runs; until that is done, the runs loaded before answer requests.

        ServiceError if a run could not be loaded.
        """
        async with _deadline(self.config.deadline_s):
            await self._read(request, ReloadBody)
        if failed := await self._reload():
            raise ServiceError(409, "reload_failed", failed)
        return await self.models(request)

    async def _watch(self) -> None:
        """Reload whenever a path leads to another run, and take a new token."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await _in_daemon(self._guard.renew_token)
            if self._reloading.locked():
                continue
            try:
                found = await _in_daemon(self.store.find_changes)
                if found and found != self._refused:
                    await self._reload()
                elif self._refused and not found:  # the paths lead back to the loaded runs
                    self._refused, self._reload_failed = (), None
            except Exception as error:
                log("watch_failed", message=repr(error))

    async def _reload(self) -> str | None:
        """Reload, and return why it failed. All requests during a reload share the next one."""
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload_in_turn())
        # The deadline of one request must not cancel the reload of the others.
        return await asyncio.shield(self._next_reload)

    async def _reload_in_turn(self) -> str | None:
        async with self._reloading:
            self._next_reload = None
            failed, self._refused = None, ()
            found: Sequence[object] = ()
            try:
                found = await _in_daemon(self.store.find_changes)
                await _in_daemon(self.store.load)
                log("reload", digests=self._digests())
            except Exception as error:
                failed, self._refused = str(error) or repr(error), found
                log("reload_failed", message=failed)
            self.metrics.reloads.labels("done" if failed is None else "failed").inc()
            self._reload_failed = failed
            return failed

    def _digests(self) -> dict[str, str]:
        return {served.name: served.digest for served in self.store.models}

    async def healthz(self, request: Request) -> Response:
        return _response({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        return _response({"status": "ready"})

    async def metrics_text(self, request: Request) -> Response:
        self.metrics.queue.set(
            self.batcher.num_waiting
        )  # batches set this, and the last one may be long ago
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type=_JSON)

    async def _read(self, request: Request, kind: type[_Body]) -> _Body:
        """Return the body of a request; ServiceError if it is too long or invalid."""
        _check_json(request)
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            words = f"content-encoding is {short_repr(coding)}; send the body as it is"
            raise ServiceError(415, "unsupported_media_type", words)
        if "upgrade" in request.headers:  # the server then reads no body
            raise ServiceError(
                400, "bad_request", "send no Upgrade header: the service speaks HTTP/1.1 only"
            )
        limit = self.config.max_body_bytes
        too_long = ServiceError(413, "body_too_large", f"the body is longer than {limit} bytes")
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise too_long
        # The header may be missing, or lower than what is sent: bytes are counted too.
        chunks, num_bytes = [], 0
        async for chunk in request.stream():
            chunks.append(chunk)
            num_bytes += len(chunk)
            if num_bytes > limit:
                raise too_long
        body = b"".join(chunks)
        encoding = json.detect_encoding(body)  # by the first four bytes
        if not encoding.startswith("utf-8"):
            raise ServiceError(422, "invalid", f"the body is {encoding}; send JSON in UTF-8")
        return _valid(kind, kind.model_validate_json, body.removeprefix(BOM_UTF8))

    async def _answer(
        self,
        request: Request,
        served: ServedModel,
        answer: Callable[[Sequence[_Asked]], Sequence[_Answered | ServiceError]],
        asked: _Asked,
        num_users: int = 1,
    ) -> _Answered:
        """Return the answer of a run to one request, which is answered in a batch with others."""
        request.scope["foretaste"].update(model=served.name, digest=served.digest, users=num_users)
        answered: _Answered = await self.batcher.submit(
            Job(
                group=(served, request.scope["foretaste"]["route"]),
                answer=answer,
                body=asked,
                num_users=num_users,
                deadline=monotonic() + self.config.deadline_s,
            )
        )
        return answered


async def _in_daemon(work: Callable[[], _Result]) -> _Result:
    """Return the result of ``work``, which runs on a daemon thread of its own.

    `asyncio.to_thread` would join the thread when the service ends, and an SQL condition or a file
    system may take for ever.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_Result] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: object) -> None:
        if not result.done():  # cancelled in between
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome: Any = result.set_result, work()
        except Exception as error:
            outcome = result.set_exception, error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, *outcome)

    Thread(target=run, name="load", daemon=True).start()
    return await result


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """Raise ServiceError in a block that takes longer; a job that still waits is then skipped."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise expired_error() from None


def _route(
    path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str = "GET"
) -> Route:
    async def note_request(request: Request) -> Response:
        request.scope["foretaste"]["route"] = path
        return await endpoint(request)

    return Route(path, note_request, methods=[method])


def _check_json(request: Request) -> None:
    """Raise ServiceError unless the content type is JSON."""
    # Another site's page cannot send this type without a permission, which the service does not
    # give.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise ServiceError(415, "unsupported_media_type", f"send content-type: {_JSON}")


def _valid(kind: type[_Body], validate: Callable[[_Given], _Body], given: _Given) -> _Body:
    try:
        return validate(given)
    except ValidationError as error:
        raise ServiceError.invalid(error, kind) from error


def _response(content: Json) -> Response:
    return Response(to_json(content), media_type=_JSON)
