"""Connections: silent ones, too many, and heads that are endless or too long."""

from __future__ import annotations

import re
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from tests.runs.tiny import FIRST_USER
from tests.serve import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of the process")

PROBE = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"POST /v1/reload HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = {"users": [{"user_id": FIRST_USER}], "k": 2}


def patch(**constants: object) -> str:
    lines = [f"connections.{name} = {value}" for name, value in constants.items()]
    return "\n".join(["from foretaste.serve import connections", *lines])


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[processes.Served]:
    """A service with room for 160 connections and 22 in excess; a connection without a request for
    half a second is idle."""
    limits = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
    with processes.serve(runs / "popularity", patch=limits + patch(_IDLE_S=0.5)) as found:
        yield found


@pytest.fixture(scope="module")
def hasty(runs: Path) -> Iterator[processes.Served]:
    """A service that waits one second for a head."""
    with processes.serve(runs / "popularity", patch=patch(HEAD_S=1.0)) as found:
        yield found


def connected(served: processes.Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), processes.LIMIT_S)


def status(sender: socket.socket, sent: bytes = b"") -> bytes:
    """The first line of the answer, which is read whole: head and body may come in two parts."""
    sender.sendall(sent)
    answer = sender.recv(1000)
    while (found := re.search(rb"content-length: (\d+)\r\n(?:.+\r\n)*\r\n", answer)) is None or (
        len(answer) < found.end() + int(found[1])
    ):
        more = sender.recv(1000)
        assert more, answer
        answer += more
    return answer[:12]


def test_silent_connections_make_room(served: processes.Served) -> None:
    with ExitStack() as stack:
        for number in range(600):
            sender = stack.enter_context(connected(served))
            if number % 2:
                sender.sendall(b"GET /readyz HTTP/1.1\r\nhost: ")
        for _ in range(20):
            assert served.ask("GET", "/readyz") == (200, {"status": "ready"})
        processes.wait_for(lambda: served.ask("POST", "/v1/recommend", BODY)[0] == 200)


def test_the_excess_alone_is_refused(runs: Path) -> None:
    small = patch(MAX_CONNECTIONS=112, _SPARE_CONNECTIONS=16, _IDLE_S=100)
    with (
        processes.serve(runs / "popularity", "--deadline-s", 60, patch=small) as served,
        ExitStack() as stack,
    ):
        begun = b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
        begun += b"content-type: application/json\r\n\r\n{"
        senders = [stack.enter_context(connected(served)) for _ in range(128)]
        for sender in senders:
            sender.sendall(begun)
        assert {status(sender) for sender in senders[112:]} == {b"HTTP/1.1 503"}
        for path in ("/readyz", "/healthz"):
            assert served.ask("GET", path)[0] == 200
        for sender in senders[:112]:
            assert status(sender, b"}") == b"HTTP/1.1 422"
        for sender in senders:
            sender.close()
        processes.wait_for(lambda: served.ask("POST", "/v1/recommend", BODY)[0] == 200)


def test_a_head_that_does_not_end_is_ended(hasty: processes.Served) -> None:
    with connected(hasty) as silent, connected(hasty) as half, connected(hasty) as kept:
        half.sendall(b"GET /readyz HTTP/1.1\r\nhost: lo")
        assert status(kept, PROBE) == b"HTTP/1.1 200"
        kept.sendall(b"GET")
        began = monotonic()
        for sender in (silent, half, kept):
            assert sender.recv(1) == b""
        assert 0.25 < monotonic() - began < 30


def test_a_connection_without_a_request_is_kept_for_the_next(hasty: processes.Served) -> None:
    with connected(hasty) as sender:
        assert status(sender, PROBE) == b"HTTP/1.1 200"
        sender.settimeout(1.5)
        with pytest.raises(TimeoutError):
            sender.recv(1)
        sender.settimeout(processes.LIMIT_S)
        assert status(sender, PROBE) == b"HTTP/1.1 200"


def test_requests_come_in_one_piece_and_in_pieces(served: processes.Served) -> None:
    with connected(served) as sender:
        sender.sendall(PROBE * 2)
        for byte in PROBE:
            sender.sendall(bytes([byte]))
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 3:
            answers += sender.recv(1000)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"x" * 1000),
        (b"GET /readyz HTTP/1.1\r\nhost: ", b"x" * 1000),
        (b"GET /readyz HTTP/1.1\r\n", b"a: b\r\n" * 100),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 100),
        (CHUNKED + b"2;", b"x" * 1000),
    ],
    ids=["path", "value", "lines", "trailers", "extension"],
)
def test_a_head_is_bounded(served: processes.Served, begin: bytes, more: bytes) -> None:
    with connected(served) as sender:
        sender.sendall(begin)
        began = monotonic()
        with pytest.raises(ConnectionError):
            _ = [sender.sendall(more) for _ in range(100_000)]
        assert monotonic() - began < 20
    assert served.ask("GET", "/readyz")[0] == 200


def test_a_whole_head_that_is_too_long_is_refused(served: processes.Served) -> None:
    head = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\na: " + b"x" * (1 << 16) + b"\r\n\r\n"
    with connected(served) as sender:
        assert status(sender, head) == b"HTTP/1.1 431"


def test_a_long_head_and_a_long_body_are_read(served: processes.Served) -> None:
    with connected(served) as sender:
        head = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\na: " + b"x" * 60_000 + b"\r\n\r\n"
        assert status(sender, head * 2) == b"HTTP/1.1 200"
    body = BODY | {"exclude": list(range(100_000, 190_000))}
    assert served.ask("POST", "/v1/recommend", body)[0] == 200


def test_the_service_has_no_tls(served: processes.Served) -> None:
    with pytest.raises(ssl.SSLError):
        ssl.get_server_certificate(("127.0.0.1", served.port), timeout=processes.LIMIT_S)
