"""Guard of the service: checks the token and the Host header of requests."""

from __future__ import annotations

import hmac
import re
from contextlib import suppress
from ipaddress import ip_address

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from foretaste.errors import SettingError
from foretaste.serve import page
from foretaste.serve.config import ServeConfig
from foretaste.serve.connections import IS_EXCESS
from foretaste.serve.errors import ServiceError, overloaded_error
from foretaste.serve.log import log

PROBES = ("/healthz", "/readyz")
OPEN_PATHS = {*PROBES, *page.FILES}
"""Paths without a token: probes have none, and the page asks the user for it."""

_HOST = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[^:]+?)\.?)(?::\d+)?")


class Guard:
    """Middleware that refuses requests without the token, or for another host name.

    The check of names is against DNS rebinding: a page of another site lets its own name lead to
    this machine, and its script then reads from the service. The Host header has that name. A token
    keeps that script out too, so with a token names are checked only if some are given.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self._app = app
        self._config = config
        self._token_state = self._state_of_token()  # first: the file may change in between
        self._token = config.token()
        self.token_failed: str | None = None
        """The reason why the present token file is not used."""
        self._names: set[str] | None = None
        if self._token is None or config.allowed_hosts:
            names = "localhost", config.host, *config.allowed_hosts
            self._names = {name.lower().removesuffix(".") for name in names}

    def renew_token(self) -> None:
        """Read a changed token file; the last valid token stays if the file has none."""
        state = self._state_of_token()
        if state == self._token_state:
            return
        self._token_state = state
        try:
            self._token = self._config.token()
        except SettingError as error:
            self.token_failed = str(error)
            log("token_failed", message=str(error))
        else:
            self.token_failed = None
            log("token")

    def _state_of_token(self) -> object:
        """Return the state of the token file; None if there is none."""
        with suppress(OSError):
            if self._config.token_file is not None:
                found = self._config.token_file.stat()
                return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = scope["headers"]
        if scope.get("state", {}).get(IS_EXCESS) and scope["path"] not in PROBES:
            response = overloaded_error().response()
            response.headers["connection"] = "close"
            return response
        # Starlette's TrustedHostMiddleware would answer in plain text, and cannot allow all IP
        # addresses.
        for name, value in headers:  # HTTP/1.0 may have no Host; browsers send one
            # latin-1 decodes every byte: a Host of odd bytes is refused like any other.
            if name == b"host" and not self._is_ours(value.decode("latin-1")):
                words = "Host names no host of the service: --allowed-hosts adds names"
                return ServiceError(421, "misdirected", words).response()
        given = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, sent = given.partition(b" ")
        # compare_digest takes the same time for every token, so times give nothing away.
        if (
            self._token is None
            or scope["path"] in OPEN_PATHS
            or (scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(b" "), self._token))
        ):
            return None
        error = ServiceError(401, "unauthorized", "send the token: Authorization: Bearer TOKEN")
        response = error.response()
        response.headers["www-authenticate"] = "Bearer"
        return response

    def _is_ours(self, host: str) -> bool:
        """Return whether a host is allowed or an IP address, which no site takes as its name."""
        if self._names is None:
            return True
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found["address"] or found["name"]
        return name in self._names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
