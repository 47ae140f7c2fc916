"""The OpenAPI document of the service, made of its schemas; its examples are run as tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from foretaste import __version__
from foretaste.serve import schemas
from foretaste.serve.run_info import RunResponse
from foretaste.serve.schemas import (
    EventsBody,
    HistoryQuery,
    RecommendBody,
    ReloadBody,
    RunQuery,
    SearchQuery,
    SimilarBody,
)

_REF = "#/components/schemas/{model}"
_ERRORS = {
    400: "This is no request of HTTP/1.1, or it did not come to its end.",
    401: "The token is missing or another.",
    409: "A run could not be loaded; those before go on answering.",
    413: "The body is too long.",
    415: "The body is not said to be JSON.",
    421: "The name in Host is not one of the service.",
    422: "The body or a parameter is not what it must be; error.field has the place.",
    404: "The service keeps no events.",
    503: "Too many requests wait; Retry-After has seconds.",
    504: "The deadline passed.",
}
_ANSWERING = (400, 413, 415, 422, 503, 504)
_FINDING = (422, 503, 504)

RECOMMEND_EXAMPLE = {"users": [{"user_id": 7}, {"history": [1, 5]}], "k": 2}
EVENTS_EXAMPLE = {"events": [{"event_id": "order-1001", "user_id": 7, "item_id": 1}]}
SIMILAR_EXAMPLE = {"item_ids": [1], "k": 2}


def document(runs: Sequence[str]) -> dict[str, Any]:
    """The document for runs of these names."""
    responses: list[type[BaseModel]] = [
        schemas.RecommendResponse,
        schemas.SimilarResponse,
        schemas.EventsResponse,
        schemas.ItemsResponse,
        schemas.UsersResponse,
        schemas.HistoryResponse,
        schemas.ModelsResponse,
        RunResponse,
        schemas.Status,
        schemas.ErrorResponse,
    ]
    queries = (SearchQuery, HistoryQuery, RunQuery)
    described: list[tuple[type[BaseModel], Any]] = [
        (RecommendBody, "validation"),
        (SimilarBody, "validation"),
        (EventsBody, "validation"),
        (ReloadBody, "validation"),
        *((kind, "validation") for kind in queries),
        *((kind, "serialization") for kind in responses),
    ]
    _, definitions = models_json_schema(described, ref_template=_REF)
    components = definitions["$defs"]
    for body in (RecommendBody, SimilarBody, *queries):
        components[body.__name__]["properties"]["model"]["anyOf"][0]["enum"] = [*runs]
    search, history, run = (_parameters(components.pop(kind.__name__)) for kind in queries)
    return {
        "openapi": "3.1.0",
        "info": {"title": "foretaste", "version": __version__},
        "paths": {
            "/v1/recommend": _post(
                "Recommend items to users, known or new",
                RecommendBody,
                schemas.RecommendResponse,
                RECOMMEND_EXAMPLE,
            ),
            "/v1/events": _post(
                "Keep interactions, which the next lists of their users reflect",
                EventsBody,
                schemas.EventsResponse,
                EVENTS_EXAMPLE,
                (404, *_ANSWERING),
            ),
            "/v1/similar": _post(
                "List the items most similar to items",
                SimilarBody,
                schemas.SimilarResponse,
                SIMILAR_EXAMPLE,
            ),
            "/v1/items": _get(
                "Find items by a part of their id or title",
                schemas.ItemsResponse,
                _FINDING,
                search,
            ),
            "/v1/users": _get(
                "Find users of the run by a part of their id",
                schemas.UsersResponse,
                _FINDING,
                search,
            ),
            "/v1/history": _get(
                "List the items that a user has", schemas.HistoryResponse, _FINDING, history
            ),
            "/v1/models": _get("List the runs that answer", schemas.ModelsResponse),
            "/v1/run": _get("Describe the training of a run", RunResponse, (422,), run),
            "/v1/reload": _post(
                "Load anew what the directories of the runs hold now",
                ReloadBody,
                schemas.ModelsResponse,
                {},
                (400, 409, 413, 415, 422, 504),
            ),
            "/healthz": _get("Say that the process is alive", schemas.Status),
            "/readyz": _get("Say that the runs are loaded and warm", schemas.Status),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of a query, as the document has them."""
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": described}
        for name, described in schema["properties"].items()
    ]


def _get(
    summary: str,
    response: type[BaseModel],
    errors: tuple[int, ...] = (),
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    operation = {"summary": summary, "responses": _responses(response, (401, 421, *errors))}
    return {"get": operation | ({"parameters": parameters} if parameters else {})}


def _post(
    summary: str,
    body: type[BaseModel],
    response: type[BaseModel],
    example: dict[str, Any],
    errors: tuple[int, ...] = _ANSWERING,
) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _reference(body), "example": example}},
            },
            "responses": _responses(response, (401, 421, *errors)),
        }
    }


def _responses(response: type[BaseModel], errors: tuple[int, ...]) -> dict[str, Any]:
    described = {200: ("Answered.", response)}
    described |= {status: (_ERRORS[status], schemas.ErrorResponse) for status in errors}
    return {
        str(status): {
            "description": text,
            "content": {"application/json": {"schema": _reference(kind)}},
        }
        for status, (text, kind) in sorted(described.items())
    }


def _reference(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=kind.__name__)}
