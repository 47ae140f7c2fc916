"""A file server on this machine that can fail like the network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """Server of files, with its failures and the requests it got."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by path, such as ``/ml-1m.zip``."""
    cut_after: int | None = None
    """Bytes sent before the connection is closed."""
    stall_after: int | None = None
    """Bytes sent before the server falls silent for as long as it runs."""
    status: int | None = None
    """The error code of every answer."""
    requests: list[str] = field(default_factory=list)
    """The path of every request."""
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
        state.requests.append(self.path)
        content = state.files.get(self.path)
        if state.status is not None or content is None:
            self.send_error(state.status or 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        ends = [end for end in (state.cut_after, state.stall_after) if end is not None]
        self.wfile.write(content[: min(ends, default=len(content))])
        self.wfile.flush()
        if state.stall_after is not None:
            state.closing.wait()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""
