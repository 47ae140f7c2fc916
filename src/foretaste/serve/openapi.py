"""The endpoints of the service, and their OpenAPI document, whose examples are run as tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from foretaste import __version__
from foretaste._util.documents import Document
from foretaste.serve import schemas

_REF = "#/components/schemas/{model}"
_ERRORS = {
    400: "The request is not HTTP/1.1, or it ended early.",
    401: "The token is missing or wrong.",
    409: "A run could not be loaded; the runs loaded before keep answering.",
    413: "The body is too long.",
    415: "The content type of the body is not JSON.",
    421: "The Host header names no host of the service.",
    422: "The body or a parameter is invalid; error.field has the place.",
    404: "The service stores no events.",
    503: "Too many requests wait; Retry-After has the seconds to wait.",
    504: "The deadline passed.",
}
_ANSWERING = (400, 413, 415, 422, 503, 504)
_FINDING = (422, 503, 504)


class Endpoint(NamedTuple):
    """A path of the API."""

    path: str
    summary: str
    response: type[BaseModel]
    asked: type[BaseModel] | None = None
    """The class of the body if there is an example of it, otherwise of the parameters."""
    example: Document | None = None
    errors: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        return "GET" if self.example is None else "POST"


ENDPOINTS = {
    "recommend": Endpoint(
        "/v1/recommend",
        "Recommend items to users, known or new",
        schemas.RecommendResponse,
        schemas.RecommendBody,
        {"users": [{"user_id": 7}, {"history": [1, 5]}], "k": 2},
        _ANSWERING,
    ),
    "events": Endpoint(
        "/v1/events",
        "Store events, which the next lists of their users use",
        schemas.EventsResponse,
        schemas.EventsBody,
        {"events": [{"event_id": "order-1001", "user_id": 7, "item_id": 1}]},
        (404, *_ANSWERING),
    ),
    "withdraw": Endpoint(
        "/v1/events/withdraw",
        "Withdraw events, such as a returned order, or all events of a user; the next lists and "
        "trainings ignore them",
        schemas.WithdrawResponse,
        schemas.WithdrawBody,
        {"event_ids": ["order-1001"]},
        (404, *_ANSWERING),
    ),
    "similar": Endpoint(
        "/v1/similar",
        "List the most similar items of each given item",
        schemas.SimilarResponse,
        schemas.SimilarBody,
        {"item_ids": [1], "k": 2},
        _ANSWERING,
    ),
    "items": Endpoint(
        "/v1/items",
        "Find items by a part of their id or title",
        schemas.ItemsResponse,
        schemas.SearchQuery,
        errors=_FINDING,
    ),
    "history": Endpoint(
        "/v1/history",
        "List the items that a user has",
        schemas.HistoryResponse,
        schemas.HistoryQuery,
        errors=_FINDING,
    ),
    "models": Endpoint("/v1/models", "List the runs that answer", schemas.ModelsResponse),
    "reload": Endpoint(
        "/v1/reload",
        "Reload the runs from their directories",
        schemas.ModelsResponse,
        schemas.ReloadBody,
        {},
        (400, 409, 413, 415, 422, 504),
    ),
    "healthz": Endpoint("/healthz", "Say that the process is alive", schemas.Status),
    "readyz": Endpoint("/readyz", "Say that the runs are loaded and warm", schemas.Status),
}
"""The endpoints by the names of the methods that answer them."""


def document(runs: Sequence[str]) -> Document:
    """Return the OpenAPI document of a service with runs of these names."""
    described: list[tuple[type[BaseModel], Any]] = [(schemas.ErrorResponse, "serialization")]
    for endpoint in ENDPOINTS.values():
        described.append((endpoint.response, "serialization"))
        if endpoint.asked is not None:
            described.append((endpoint.asked, "validation"))
    _, definitions = models_json_schema([*dict.fromkeys(described)], ref_template=_REF)
    components = definitions["$defs"]
    for kind, mode in described:
        if mode == "validation" and "model" in kind.model_fields:
            components[kind.__name__]["properties"]["model"]["anyOf"][0]["enum"] = [*runs]
    paths = {
        endpoint.path: {endpoint.method.lower(): _operation(endpoint, components)}
        for endpoint in ENDPOINTS.values()
    }
    queries = {kind.__name__ for kind, _ in described if kind.__name__.endswith("Query")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "foretaste", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {name: one for name, one in components.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(endpoint: Endpoint, components: Document) -> Document:
    answers = {200: ("Answered.", endpoint.response)}
    errors = (401, 421, *endpoint.errors)
    answers |= {status: (_ERRORS[status], schemas.ErrorResponse) for status in errors}
    operation: Document = {
        "summary": endpoint.summary,
        "responses": {
            str(status): {
                "description": text,
                "content": {"application/json": {"schema": _reference(kind)}},
            }
            for status, (text, kind) in sorted(answers.items())
        },
    }
    if endpoint.asked is None:
        return operation
    if endpoint.example is None:
        query = components[endpoint.asked.__name__]
        required = query.get("required", ())
        operation["parameters"] = [
            {"name": name, "in": "query", "required": name in required, "schema": described}
            for name, described in query["properties"].items()
        ]
        return operation
    content = {"schema": _reference(endpoint.asked), "example": endpoint.example}
    return operation | {"requestBody": {"required": True, "content": {"application/json": content}}}


def _reference(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=kind.__name__)}
