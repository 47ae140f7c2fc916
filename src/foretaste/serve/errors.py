"""Errors of the API, all of the shape {"error": {"code", "message", "field"}}."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from foretaste.errors import ForetasteError

RETRY_AFTER_S = 1
NOSNIFF = (b"x-content-type-options", b"nosniff")
"""Header of every response: a browser must not guess that JSON is a page."""
NO_STORE = (b"cache-control", b"no-store")
"""Header of answers that may be about a person: no cache on the way keeps them."""
_MAX_FIELD = 200
_MAX_MESSAGE = 2000


class ServiceError(Exception):
    """Refusal of a request, with an HTTP status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field

    @classmethod
    def invalid(cls, error: ValidationError) -> ServiceError:
        """Return the first problem of a body, without the values of the body."""
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, found["loc"]))
        message = found["msg"]
        if found["type"] == "extra_forbidden":
            message = "there is no such field; /openapi.json has all of them"
        return cls(422, "invalid", message, place[:_MAX_FIELD] or None)

    def response(self) -> Response:
        """Return the response with this error."""
        # `json` escapes all but ASCII: the name of a field may have a lone surrogate, which is no
        # UTF-8.
        error = {"code": self.code, "message": str(self)[:_MAX_MESSAGE], "field": self.field}
        headers = {"retry-after": str(RETRY_AFTER_S)} if self.status == 503 else None
        return Response(
            json.dumps({"error": error}),
            status_code=self.status,
            headers=headers,
            media_type="application/json",
        )


def overloaded_error() -> ServiceError:
    return ServiceError(503, "overloaded", "too many requests wait; try again")


def events_unavailable() -> ServiceError:
    return ServiceError(503, "events_unavailable", "the events cannot be read or kept; try again")


async def respond(request: Request, error: Exception) -> Response:
    """Return the response to an exception of a route."""
    if isinstance(error, ServiceError):
        return error.response()
    if isinstance(error, ForetasteError):
        return ServiceError(422, "unsupported", str(error)).response()
    if isinstance(error, ClientDisconnect):  # for the log and the metrics
        return ServiceError(400, "disconnected", "the connection ended before the body").response()
    if isinstance(error, HTTPException):  # no such path, or no such method
        phrase = HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_")
        response = ServiceError(error.status_code, code, phrase).response()
        response.headers.update(error.headers or {})
        return response
    return ServiceError(500, "internal_error", "the service failed; its log says why").response()


HANDLERS: dict[Any, Any] = dict.fromkeys(
    (ServiceError, ForetasteError, ClientDisconnect, HTTPException, Exception), respond
)
"""The exception handlers of a Starlette application."""
