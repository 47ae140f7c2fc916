"""Request ids, the access log and the metrics of the service."""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretaste._util.documents import Document
from foretaste.serve.errors import NO_STORE, NOSNIFF
from foretaste.serve.lists import WrittenList
from foretaste.serve.log import log
from foretaste.serve.store import ModelStore

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_MAX_PATH = 200
_PERSONAL = "/v1/"
_LATENCIES_S = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Metrics of the service."""

    def __init__(self, store: ModelStore) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_Models(store))
        self.requests = Counter(
            "foretaste_requests", "Requests.", ("route", "status"), registry=registry
        )
        self.seconds = Histogram(
            "foretaste_request_seconds",
            "Seconds from the head of a request to the head of its response.",
            ("route",),
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self.batch_requests = Histogram(
            "foretaste_batch_requests", "Requests of a batch.", buckets=_SIZES, registry=registry
        )
        self.batch_users = Histogram(
            "foretaste_batch_users", "Users of a batch.", buckets=_SIZES, registry=registry
        )
        self.queue = Gauge("foretaste_queue_requests", "Requests that wait.", registry=registry)
        self.users = Counter("foretaste_users", "Users answered.", ("known",), registry=registry)
        self.popularity = Counter(
            "foretaste_popularity_lists",
            "Lists in popularity order, because nothing was known of the user.",
            registry=registry,
        )
        self.cached = Counter(
            "foretaste_cached_lists", "Lists taken from the cache.", registry=registry
        )
        self.reloads = Counter("foretaste_reloads", "Reloads.", ("outcome",), registry=registry)
        self.events = Counter(
            "foretaste_events", "Events by outcome.", ("outcome",), registry=registry
        )
        self._by_route: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._known = {flag: self.users.labels(str(flag).lower()) for flag in (True, False)}

    def note_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        found = self._by_route.get((route, status))
        if found is None:  # prometheus_client's look-up by labels takes longer than the count
            found = (self.requests.labels(route, str(status)), self.seconds.labels(route))
            self._by_route[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def note_batch(self, num_requests: int, num_users: int, num_waiting: int) -> None:
        """Count a batch, and set the number of waiting requests."""
        self.queue.set(num_waiting)
        self.batch_requests.observe(num_requests)
        self.batch_users.observe(num_users)

    def note_lists(self, lists: Sequence[WrittenList]) -> None:
        """Count the users of a response."""
        num_known = sum(one.is_known for one in lists)
        self._known[True].inc(num_known)
        self._known[False].inc(len(lists) - num_known)
        self.popularity.inc(sum(one.is_popularity for one in lists))
        self.cached.inc(sum(one.is_cached for one in lists))

    def note_events(self, counts: Mapping[str, int]) -> None:
        """Count events by outcome."""
        for outcome, count in counts.items():
            self.events.labels(outcome).inc(count)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class _Models(Collector):
    """Collector of the digest and age of the loaded runs."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    def collect(self) -> Iterable[GaugeMetricFamily]:
        age = GaugeMetricFamily(
            "foretaste_model_age_seconds",
            "Seconds since a run was loaded.",
            labels=("model", "digest"),
        )
        for served in self._store.models:
            seconds = (datetime.now(UTC) - served.loaded_at).total_seconds()
            age.add_metric((served.name, served.digest), seconds)
        yield age


class Telemetry:
    """Middleware that gives every request an id, counts it and logs it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, access_log: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = perf_counter(), 500
        request_id = _request_id(scope["headers"])
        entry: Document = {}
        scope["foretaste"] = entry

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id),
                    NOSNIFF,
                ]
                if scope["path"].startswith(_PERSONAL):
                    message["headers"].append(NO_STORE)
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:  # Starlette has answered with 500 and raises the error again
            entry["error"] = traceback.format_exc()
        elapsed_s = perf_counter() - started
        # Unknown paths count under one name: a metric for each would let strangers fill the memory.
        self._metrics.note_request(entry.pop("route", "none"), status, elapsed_s)
        if self._access_log or "error" in entry:
            log(
                "request",
                request_id=request_id.decode(),
                method=scope["method"],
                path=scope["path"][:_MAX_PATH],
                status=status,
                elapsed_ms=round(1000 * elapsed_s, 3),
                **entry,
            )


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id in a request's headers, or a new one if it is missing or has odd characters."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value
    # Not from `secrets`: the system's random bytes take 40 µs, and the id is no secret.
    return b"%016x" % random.getrandbits(64)
