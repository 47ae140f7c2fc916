"""HTTP on a connection: uvicorn's protocol, with bounds for whoever sends or reads without end."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foretaste.serve.errors import NOSNIFF, ServiceError

KEEP_ALIVE_S = 75
"""Longer than proxies keep a connection that is idle, so that it is not closed under a request."""

_LINGER_S = 2.0
"""After the deadline, so that who still sends a body can read that it is not wanted any more."""

_MAX_HEAD_BYTES = 65_536
"""Of the line and the headers of a request."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request does not come to an end, or whose response is not read.

    Uvicorn bounds neither; of what is idle it closes those alone that have had a response.
    """

    def __init__(self, *, deadline_s: float, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._receive_s = deadline_s + _LINGER_S
        self._is_in_head = False
        self._is_coming = False
        self._num_bytes = 0
        self._until_received: asyncio.TimerHandle | None = None
        self._until_read: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_within(KEEP_ALIVE_S)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._is_coming, self._num_bytes = True, True, 0
        self._expect_within(self._receive_s)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_coming = False
        self._expect_within(None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_coming:
            self._expect_within(KEEP_ALIVE_S)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._num_bytes += len(data)
        if self._is_in_head and self._num_bytes > _MAX_HEAD_BYTES:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._until_read = self.loop.call_later(KEEP_ALIVE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._until_read is not None:
            self._until_read.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_within(None)
        self.resume_writing()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        error = ServiceError(400, "bad_request", "this is no request of HTTP/1")
        response = error.response()
        headers = [*response.raw_headers, NOSNIFF, (b"connection", b"close")]
        lines = [b"HTTP/1.1 400 Bad Request", *(b"%b: %b" % pair for pair in headers), b"", b""]
        self.transport.write(b"\r\n".join(lines) + bytes(response.body))
        self.transport.close()

    def _expect_within(self, seconds: float | None) -> None:
        """Close the connection unless a whole request comes within so many seconds; None: never."""
        if self._until_received is not None:
            self._until_received.cancel()
            self._until_received = None
        if seconds is not None:
            # Not closed but aborted: what nobody reads would keep it open.
            self._until_received = self.loop.call_later(seconds, self.transport.abort)
