"""The web page of the service: its files, and their headers."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = {
    "/": "index.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/icon.svg": "icon.svg",
}
"""File of each path."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


async def respond(request: Request) -> Response:
    """Return the file of a path."""
    path = Path(__file__).with_name(FILES[request.scope["path"]])
    return Response(path.read_bytes(), headers=_HEADERS, media_type=_TYPES[path.suffix])
