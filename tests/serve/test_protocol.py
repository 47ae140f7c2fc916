"""Connections that send or read without end are closed, and the rest is HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed")
import uvicorn
from uvicorn.server import ServerState

from foretaste.serve.protocol import KEEP_ALIVE_S, BoundedProtocol

DEADLINE_S = 3.0
ASK = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"


class Timer:
    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self.seconds, self.act, self.is_cancelled = seconds, act, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop that only takes notes."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, act: Callable[[], None]) -> Timer:
        self.timers.append(Timer(seconds, act))
        return self.timers[-1]

    def create_task(self, work: Any) -> Any:
        work.close()
        return Mock()

    def aborting(self, transport: Transport) -> list[float]:
        """Seconds of the timers that are to abort the connection."""
        return [
            one.seconds
            for one in self.timers
            if not one.is_cancelled and one.act == transport.abort
        ]


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.ends: list[str] = []

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")

    def is_closing(self) -> bool:
        return bool(self.ends)

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("never run")


@pytest.fixture
def connection() -> tuple[BoundedProtocol, Transport, Loop]:
    loop, transport = Loop(), Transport()
    protocol = BoundedProtocol(
        deadline_s=DEADLINE_S,
        config=uvicorn.Config(app, ws="none", log_config=None),
        server_state=ServerState(),
        app_state={},
        _loop=loop,
    )
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, transport, loop


Connection = tuple[BoundedProtocol, Transport, Loop]


def test_a_request_must_come_to_an_end(connection: Connection) -> None:
    protocol, transport, loop = connection
    assert loop.aborting(transport) == [KEEP_ALIVE_S]
    protocol.data_received(b"\r\n")  # is passed over, and begins nothing
    assert loop.aborting(transport) == [KEEP_ALIVE_S]
    protocol.data_received(ASK[:20])
    (limit,) = loop.aborting(transport)
    assert DEADLINE_S < limit < DEADLINE_S + 5
    started = loop.timers[-1]
    protocol.data_received(ASK[20:] + b"{")
    assert loop.timers[-1] is started  # what trickles in gains no time
    assert loop.aborting(transport) == [limit]
    protocol.data_received(b"}")
    assert loop.aborting(transport) == []


def test_after_the_response_it_waits_for_what_is_missing_of_the_body(
    connection: Connection,
) -> None:
    protocol, transport, loop = connection
    protocol.data_received(ASK)
    (limit,) = loop.aborting(transport)
    protocol.on_response_complete()
    assert loop.aborting(transport) == [limit]
    protocol.data_received(b"{}")
    protocol.on_response_complete()
    assert loop.aborting(transport) == [KEEP_ALIVE_S]
    loop.timers[-1].act()
    assert transport.ends == ["abort"]


def test_who_does_not_read_is_given_up(connection: Connection) -> None:
    protocol, transport, loop = connection
    protocol.data_received(ASK + b"{}")
    protocol.pause_writing()
    assert loop.aborting(transport) == [KEEP_ALIVE_S]
    protocol.resume_writing()
    assert loop.aborting(transport) == []
    protocol.pause_writing()
    protocol.connection_lost(None)
    assert loop.aborting(transport) == []


@pytest.mark.parametrize("what", [b"\x16\x03\x01\x02\x00", b"GET \xff\xfe HTTP/1.1\r\n\r\n"])
def test_what_is_no_http_is_refused_in_the_shape_of_all_errors(
    connection: Connection, what: bytes
) -> None:
    protocol, transport, _ = connection
    protocol.data_received(what)
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"x-content-type-options: nosniff" in head
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["error"]["code"] == "bad_request"
    assert transport.ends == ["close"]
