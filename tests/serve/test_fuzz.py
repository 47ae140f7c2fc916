"""Bodies of any shape are answered or refused in the documented shapes, and never fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from foretaste.serve import schemas

IDS = st.one_of(st.integers(), st.integers(0, 15), st.integers(95, 165), st.text(max_size=4))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
LISTS = st.lists(IDS, max_size=6)
USERS = st.lists(
    st.fixed_dictionaries({}, optional={"user_id": st.none() | IDS, "history": LISTS}),
    min_size=1,
    max_size=4,
)
OPTIONS = {
    "k": st.integers(-1, 600),
    "exclude": LISTS,
    "candidates": st.none() | LISTS,
    "include_seen": st.booleans(),
    "reasons": st.booleans(),
    "model": st.sampled_from(["ease", "vae", "gmf", "popularity", "none", None]),
}


def spoiled(bodies: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """A value in which one place, or the whole, is sometimes replaced."""
    replaced = st.tuples(
        bodies, st.sampled_from(["users", "item_ids", *OPTIONS, "other"]), ANYTHING
    )
    return bodies | replaced.map(lambda found: {**found[0], found[1]: found[2]}) | ANYTHING


@pytest.mark.parametrize(
    ("path", "bodies", "answer"),
    [
        (
            "/v1/recommend",
            st.fixed_dictionaries({"users": USERS}, optional=OPTIONS),
            schemas.RecommendResponse,
        ),
        (
            "/v1/similar",
            st.fixed_dictionaries(
                {"item_ids": st.lists(IDS, min_size=1, max_size=4)},
                optional={name: OPTIONS[name] for name in ("k", "model")},
            ),
            schemas.SimilarResponse,
        ),
    ],
)
def test_no_body_makes_the_service_fail(
    client: TestClient, path: str, bodies: st.SearchStrategy[Any], answer: Any
) -> None:
    statuses: set[int] = set()

    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(spoiled(bodies))
    def ask(body: Any) -> None:
        content = json.dumps(body).encode()
        response = client.post(path, content=content, headers={"content-type": "application/json"})
        statuses.add(response.status_code)
        if response.status_code == 200:
            found = answer.model_validate_json(response.content, strict=True, extra="forbid")
            assert len(found.answers) == len(body.get("users", body.get("item_ids")))
            assert all(len(one.items) <= body.get("k", 10) for one in found.answers)
        else:
            assert response.status_code == 422, response.text
            schemas.ErrorResponse.model_validate_json(response.content, extra="forbid")

    ask()
    assert statuses == {200, 422}
