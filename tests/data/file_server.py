"""A file server on this machine that can fail in the ways the network does."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """Server of files, with its failures and the requests that came."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by path, such as ``/ml-1m.zip``."""
    knows_ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    """For one request after the other: bytes sent before the connection is closed."""
    stall_after: int | None = None
    """Bytes sent before the server falls silent for as long as it runs."""
    status: int | None = None
    """An error to answer everything with."""
    requests: list[str | None] = field(default_factory=list)
    """The Range header of every request."""
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FileServer]:
    """Serves ``files`` while the block runs."""
    state = FileServer(files=files)
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield state
        finally:
            state.closing.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: FileServer

    def do_GET(self) -> None:
        state = self.state
        asked = self.headers.get("Range")
        state.requests.append(asked)
        content = state.files.get(self.path)
        if state.status is not None or content is None:
            self.send_error(state.status or 404)
            return
        found = re.fullmatch(r"bytes=(\d+)-", asked or "")
        start = int(found[1]) if found and state.knows_ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self._send(content[start:])

    def _send(self, body: bytes) -> None:
        state = self.state
        if state.cut_after:
            body = body[: state.cut_after.pop(0)]
        if state.stall_after is not None:
            body = body[: state.stall_after]
        self.wfile.write(body)
        self.wfile.flush()
        if state.stall_after is not None:
            state.closing.wait()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is printed."""
