"""Errors of the API, all of the shape {"error": {"code", "message", "field"}}."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from foretaste._util.formatting import similar_names
from foretaste._util.other_names import translate_name
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
    def invalid(cls, error: ValidationError, kind: type[BaseModel]) -> ServiceError:
        """Return the first problem of a body of a ``kind``, without the values of the body. An
        unknown field comes first, because a known one is missing in its place."""
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        unknown = (one for one in problems if one["type"] == "extra_forbidden")
        found = next(unknown, problems[0])
        place = found["loc"]
        message = found["msg"]
        if found["type"] == "extra_forbidden":
            meant = _meant(str(place[-1])[:_MAX_FIELD], _fields_at(kind, place[:-1]))
            message = f"there is no such field;{meant} /openapi.json has all of them"
        return cls(422, "invalid", message, ".".join(map(str, place))[:_MAX_FIELD] or None)

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


def _fields_at(kind: type[BaseModel], place: Sequence[int | str]) -> Collection[str]:
    """Return the names of the fields there: ``users.0`` has those of a user."""
    for name in place:
        if isinstance(name, str):
            (kind,) = get_args(kind.model_fields[name].annotation)
    return kind.model_fields


def _meant(name: str, known: Collection[str]) -> str:
    """Return `` did you mean users?`` if one of the known names is near, or an empty text."""
    near = translate_name(name, known) or next(iter(similar_names(name, known)), None)
    return f" did you mean {near}?" if near else ""


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
