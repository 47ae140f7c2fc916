"""Connections of the service: their number, and the size and time of a request's head."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foretaste._util.system import most_files
from foretaste.serve.errors import ServiceError

MAX_CONNECTIONS = 1000
"""Connections beyond which a request gets 503, unless it is a probe."""
_SPARE_CONNECTIONS = 100
"""Connections beyond the limit that may be open, so that probes are answered and other clients get
the 503."""
_OTHER_FILES = 64
"""File descriptors of the process that are no connections."""
MAX_HEAD_BYTES = 1 << 16
HEAD_S = 10.0
"""Longest time from a connection, or from a head's first byte, to its end."""
_IDLE_S = 1.0
"""Time without a request after which a connection makes room for a new one."""

IS_EXCESS = "foretaste.is_excess"
"""Key of a scope's state: True for a request on a connection beyond the limit."""


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, with bounds on connections and heads.

    Uvicorn's own `limit_concurrency` refuses everybody while the limit is passed, and httptools
    joins heads of any size.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._num_unread = 0
        """Bytes since the parser last delivered a head, a piece of a body or its end."""
        self._is_excess = False
        most = min(MAX_CONNECTIONS + _SPARE_CONNECTIONS, most_files() - _OTHER_FILES)
        self._num_spare = min(_SPARE_CONNECTIONS, most // 8)
        self._limit = most - self._num_spare
        self.idle_since: float | None = None
        """Time from which this connection has been without a request; None while it has one."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin_head()
        self.idle_since = self.loop.time()
        num_excess = len(self.connections) - self._limit
        if num_excess > 0:
            idle_s = _IDLE_S if num_excess <= self._num_spare else 0.0
            self._is_excess = not self._close_oldest(idle_s)

    def _close_oldest(self, idle_s: float) -> bool:
        """Close the connection idle for longest, at least ``idle_s``; False if there is none."""
        idle = [
            (one.idle_since, number, one)
            for number, one in enumerate(self.connections)
            if isinstance(one, BoundedProtocol) and one.idle_since is not None
        ]
        # The number decides between equal times: connections have no order.
        since, _, oldest = min(idle, default=(math.inf, 0, self))
        if since > self.loop.time() - idle_s:
            return False
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self.idle_since = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            # Pieces, so that httptools never joins a head above the limit.
            room = MAX_HEAD_BYTES - self._num_unread
            if room <= 0:
                self._refuse_head()
                return
            part, data = data[:room], data[room:]
            self._num_unread += len(part)
            super().data_received(part)

    def _refuse_head(self) -> None:
        words = f"the head of a request has at most {MAX_HEAD_BYTES} bytes"
        body = bytes(ServiceError(431, "head_too_large", words).response().body)
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                b"content-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(body), body)
            )
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        self._num_unread = 0
        self.idle_since = None
        if self._is_excess and len(self.connections) > self._limit:
            self.scope["state"][IS_EXCESS] = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self.idle_since = self.loop.time()

    def _begin_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
