"""The routes of the API, as a Starlette application."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic, time
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from foretaste.errors import ForetasteError
from foretaste.serve import page
from foretaste.serve.batching import Batcher, Job, expired
from foretaste.serve.config import ServeConfig
from foretaste.serve.errors import HANDLERS, ServiceError, not_ready, overloaded
from foretaste.serve.events import Event, EventStore
from foretaste.serve.guard import Guard
from foretaste.serve.models import ModelStore
from foretaste.serve.openapi import document
from foretaste.serve.schemas import Bodies, ReloadBody
from foretaste.serve.telemetry import Metrics, Telemetry, log

_JSON = "application/json"
_Body = TypeVar("_Body", bound=BaseModel)


class Service:
    """The runs, the queue in front of them and the routes to both."""

    def __init__(self, store: ModelStore, config: ServeConfig) -> None:
        self.store = store
        self.event_store = None if config.events is None else EventStore(config.events)
        self.config = config
        self.metrics = Metrics(store)
        self.batcher = Batcher(
            queue_requests=config.queue_requests,
            batch_users=config.batch_users,
            wait_s=config.batch_wait_ms / 1000,
            observe=self.metrics.note_batch,
        )
        self.is_ready = False
        """True once every run has answered."""
        self.after_reload: Callable[[], None] = lambda: None
        """Called when a request had the runs loaded anew."""
        self._bodies = Bodies.within(config)
        self._openapi = to_json(document(self._bodies, store.names))
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[None] | None = None
        """That which is still to begin, if there is one."""

    def start(self) -> None:
        """Begin to answer; called once, in the event loop of the requests."""
        self.batcher.start()
        if self.event_store is not None:
            self.event_store.start()

    async def close(self) -> None:
        """Answer what waits and keep what is to be kept, then end the threads."""
        await self.batcher.close()
        if self.event_store is not None:
            await asyncio.to_thread(self.event_store.close)

    def app(self) -> ASGIApp:
        """The application, with token and Host checked and every request counted."""
        routes = [
            _route("/v1/recommend", self.recommend, "POST"),
            _route("/v1/events", self.events, "POST"),
            _route("/v1/similar", self.similar, "POST"),
            _route("/v1/items", self.items),
            _route("/v1/users", self.users),
            _route("/v1/history", self.history),
            _route("/v1/models", self.models),
            _route("/v1/run", self.run),
            _route("/v1/reload", self.reload_requested, "POST"),
            _route("/healthz", self.healthz),
            _route("/readyz", self.readyz),
            _route("/metrics", self.metrics_text),
            _route("/openapi.json", self.openapi),
            *(_route(path, page.respond) for path in page.FILES),
        ]
        starlette = Starlette(routes=routes, exception_handlers=HANDLERS)
        # It would lead /healthz/ to whatever host the request says it asks.
        starlette.router.redirect_slashes = False
        guarded = Guard(starlette, self.config)
        return Telemetry(guarded, self.metrics, access_log=self.config.access_log)

    async def recommend(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            body = await self._read(request, self._bodies.recommend)
            self.store.get(body.model).check_types(body)
            content, lists = await self._answer(
                request, "recommend", body, len(body.users), events=self.event_store
            )
        self.metrics.note_lists(lists)
        return Response(content, media_type=_JSON)

    async def events(self, request: Request) -> Response:
        store = self.event_store
        if store is None:
            raise ServiceError(404, "no_events", "no events are kept here: start with --events")
        async with _deadline(self.config.deadline_s):
            body = await self._read(request, self._bodies.events)
            served = self.store.get(None)
            served.check_types(body)
            if store.num_waiting >= self.config.queue_requests:
                raise overloaded()
            now = time()
            events = [
                Event(
                    str(one.event_id),
                    str(one.user_id),
                    str(one.item_id),
                    now if one.time is None else one.time,
                )
                for one in body.events
            ]
            num_unknown = served.count_unknown([one.item_id for one in body.events])
            num_new = await asyncio.wrap_future(store.add(events))
        counts = {"new": num_new, "repeated": len(events) - num_new}
        self.metrics.note_events(counts)
        return _response(counts | {"unknown_items": num_unknown})

    async def similar(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            body = await self._read(request, self._bodies.similar)
            content = await self._answer(request, "similar", body, len(body.item_ids))
        return Response(content, media_type=_JSON)

    async def items(self, request: Request) -> Response:
        return await self._found(request, "items", self._bodies.search)

    async def users(self, request: Request) -> Response:
        return await self._found(request, "users", self._bodies.search)

    async def history(self, request: Request) -> Response:
        return await self._found(request, "history", self._bodies.history, events=self.event_store)

    async def run(self, request: Request) -> Response:
        served = self.store.get(_query(request, self._bodies.run).model)
        return Response(served.run, media_type=_JSON)

    async def models(self, request: Request) -> Response:
        self.store.get(None)
        return _response({"models": [served.describe() for served in self.store.models]})

    async def reload_requested(self, request: Request) -> Response:
        async with _deadline(self.config.deadline_s):
            await self._read(request, ReloadBody)
        try:
            await self.reload()
        except ForetasteError as error:
            raise ServiceError(409, "reload_failed", str(error)) from error
        self.after_reload()
        return await self.models(request)

    async def reload(self) -> None:
        """Load what the directories of the runs hold now; ForetasteError where that cannot be.

        Requests are answered meanwhile, by what was loaded before. All who ask while one reload is
        under way share the one after it.
        """
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload_in_turn())
        await asyncio.shield(self._next_reload)

    async def _reload_in_turn(self) -> None:
        async with self._reloading:
            self._next_reload = None
            was_ready, outcome = self.is_ready, "failed"
            try:
                await asyncio.to_thread(self.store.load)
                outcome = "done"
            finally:
                if was_ready:
                    self.metrics.reloads.labels(outcome).inc()
            if not was_ready:
                # The thread that scores has to do once what PyTorch does for each thread.
                for served in self.store.models:
                    warm = Job((served, "warm"), served.warm, None, num_users=1, deadline=math.inf)
                    await self.batcher.submit(warm)
                self.is_ready = True
            digests = {served.name: served.digest for served in self.store.models}
            log("reload" if was_ready else "load", digests=digests)

    async def healthz(self, request: Request) -> Response:
        return _response({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        if not self.is_ready:
            raise not_ready()
        return _response({"status": "ready"})

    async def metrics_text(self, request: Request) -> Response:
        self.metrics.queue.set(self.batcher.num_waiting)  # the last batch may be long ago
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type=_JSON)

    async def _read(self, request: Request, kind: type[_Body]) -> _Body:
        """The body of a request; ServiceError where it is too long or not what it must be."""
        _check_json(request)
        if "upgrade" in request.headers:  # its body is not read then
            raise ServiceError(
                400, "bad_request", "send no Upgrade header: HTTP/1.1 is all that is spoken here"
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
        query = _query(request, kind)
        async with _deadline(self.config.deadline_s):
            content = await self._answer(request, verb, query, 1, **options)
        return Response(content, media_type=_JSON)

    async def _answer(
        self, request: Request, verb: str, body: Any, num_users: int, **options: Any
    ) -> Any:
        served = self.store.get(body.model)
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
    """Within, what takes longer ends with ServiceError; its job is not begun any more."""
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
    """ServiceError unless the body is said to be JSON: a page of another site could not do that."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise ServiceError(415, "unsupported_media_type", f"send content-type: {_JSON}")


def _query(request: Request, kind: type[_Body]) -> _Body:
    """The parameters of a request; ServiceError where they are not what they must be."""
    return _valid(partial(kind.model_validate, dict(request.query_params)))


def _valid(validate: Callable[[], _Body]) -> _Body:
    try:
        return validate()
    except ValidationError as error:
        raise ServiceError.invalid(error) from error


def _response(content: Any) -> Response:
    return Response(to_json(content), media_type=_JSON)
