"""The routes: their answers, their refusals, and the truth of the API's document."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from starlette.testclient import TestClient

from foretaste.errors import UnsupportedError
from foretaste.recommend import Answer, load
from foretaste.serve import ServeConfig, serve
from foretaste.serve.openapi import ENDPOINTS
from tests.messages import raises, says
from tests.runs.tiny import FIRST_USER
from tests.serve.conftest import serving

KNOWN = FIRST_USER


def recommend(client: TestClient, **body: object) -> Any:
    response = client.post("/v1/recommend", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def check_same(found: Any, expected: Answer) -> None:
    assert [item["item_id"] for item in found["items"]] == expected.item_ids
    assert [item["title"] for item in found["items"]] == expected.titles
    scores = [item["score"] for item in found["items"]]
    assert scores == pytest.approx(expected.scores, rel=1e-5, abs=1e-5)
    assert found["reason"] == expected.reason


@pytest.mark.parametrize("model", ["ease", "vae", "gmf"])
def test_users_histories_and_both_are_answered_as_by_the_recommender(
    client: TestClient, runs: Path, model: str
) -> None:
    users = [{"user_id": KNOWN}, {"history": [1, 5]}, {"user_id": "nobody"}]
    found = recommend(client, model=model, users=users, k=3)
    recommender = load(runs / model, "cpu")
    known, new, unknown = found["answers"]
    check_same(known, recommender.recommend(KNOWN, 3)[0])
    check_same(new, recommender.recommend_for([[1, 5]], 3)[0])
    check_same(unknown, recommender.recommend("nobody", 3, unknown="popular")[0])
    assert [one["known"] for one in found["answers"]] == [True, False, False]
    assert [one["user_id"] for one in found["answers"]] == [KNOWN, None, "nobody"]
    weights = recommender.run.loaded_digest
    assert (found["model"], found["digest"]) == (model, weights[:16])


def test_options_act(client: TestClient) -> None:
    users = [{"user_id": KNOWN}]
    (plain,) = recommend(client, users=users, k=2)["answers"]
    best = plain["items"][0]["item_id"]
    (without,) = recommend(client, users=users, k=1, exclude=[best])["answers"]
    assert without["items"] == plain["items"][1:]
    (only,) = recommend(client, users=users, k=5, candidates=[best])["answers"]
    assert [item["item_id"] for item in only["items"]] == [best]
    says(only["reason"], 1, 5, 1)
    (seen,) = recommend(client, users=users, k=100, include_seen=True)["answers"]
    (unseen,) = recommend(client, users=users, k=100)["answers"]
    assert len(seen["items"]) > len(unseen["items"])


def test_similar_items(client: TestClient, runs: Path) -> None:
    response = client.post("/v1/similar", json={"item_ids": [1, "1", 424242], "k": 2})
    same, text, unknown = response.json()["answers"]
    check_same(same, load(runs / "ease", "cpu").similar_items(1, 2)[0])
    assert (text["items"], text["item_id"]) == (same["items"], "1")
    assert (unknown["known"], unknown["items"]) == (False, [])
    says(unknown["reason"])


def test_a_model_that_compares_no_items_reports_it(client: TestClient) -> None:
    response = client.post("/v1/similar", json={"model": "popularity", "item_ids": [1]})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (422, "unsupported")
    says(error["message"], "popularity")


def test_items_are_found_by_id_and_title_those_with_most_users_first(client: TestClient) -> None:
    everything = client.get("/v1/items", params={"k": 500}).json()["items"]
    order = [item["item_id"] for item in everything]
    assert set(order[:12]) == set(range(12))
    by_title = client.get("/v1/items", params={"query": "BOOK of 1", "k": 4}).json()["items"]
    assert [item["item_id"] for item in by_title] == [i for i in order if str(i)[0] == "1"][:4]
    assert by_title[0]["title"] == f"The Book of {by_title[0]['item_id']}"
    by_id = client.get("/v1/items", params={"query": "11"}).json()["items"]
    assert by_id
    assert all("11" in str(item["item_id"]) for item in by_id)
    assert client.get("/v1/items", params={"query": "no such book"}).json()["items"] == []
    assert len(client.get("/v1/items").json()["items"]) == 10
    assert client.get("/v1/items", params={"k": 1001}).json()["error"]["field"] == "k"


def test_reasons_are_items_of_the_history(client: TestClient) -> None:
    users = [{"history": [1, 5, 8, 11]}, {"history": []}]
    found, empty = recommend(client, model="vae", users=users, k=4, reasons=True)["answers"]
    assert all("because" not in item for item in empty["items"])
    because = [one for item in found["items"] for one in item["because"]]
    assert because
    assert {one["item_id"] for one in because} <= {1, 5, 8, 11}
    assert all(one["title"] == f"The Book of {one['item_id']}" for one in because)
    plain, _ = recommend(client, model="vae", users=users, k=4)["answers"]
    assert [one["item_id"] for one in found["items"]] == [one["item_id"] for one in plain["items"]]


def test_a_history_has_what_the_run_and_the_events_have(client: TestClient) -> None:
    def history(user_id: object, **options: object) -> Any:
        response = client.get("/v1/history", params={"user_id": user_id, **options})
        assert response.status_code == 200, response.text
        return response.json()

    before = history(KNOWN + 1)
    items = [item["item_id"] for item in before["items"]]
    assert (before["user_id"], before["known"], before["num_items"]) == (
        KNOWN + 1,
        True,
        len(items),
    )
    further = next(item for item in range(12) if item not in items)
    events = [
        {"event_id": f"history-{number}", "user_id": user, "item_id": item}
        for number, (user, item) in enumerate([(KNOWN + 1, further), (4002, 5), (4002, 424242)])
    ]
    assert client.post("/v1/events", json={"events": events}).status_code == 200
    after = history(KNOWN + 1)
    assert {item["item_id"] for item in after["items"]} == {*items, further}
    assert history(KNOWN + 1, k=2)["items"] == after["items"][:2]
    assert history(KNOWN + 1, k=2)["num_items"] == len(items) + 1
    yan = history(4002)
    assert (yan["user_id"], yan["known"], yan["num_items"]) == ("4002", False, 1)
    assert yan["items"] == [{"item_id": 5, "title": "The Book of 5"}]
    assert history("zoe")["items"] == []
    assert client.get("/v1/history").json()["error"]["field"] == "user_id"


def test_the_page_runs_nothing_but_its_own_script(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        part.split(" ", 1) for part in page.headers["content-security-policy"].split("; ")
    )
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == (
        "'none'",
        "'self'",
        "'self'",
    )
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "style=" not in page.text
    assert page.text.count("<script") == page.text.count('<script type="module" src=') == 1


def test_models_are_listed_the_default_first(client: TestClient, runs: Path) -> None:
    models = client.get("/v1/models").json()["models"]
    assert [model["kind"] for model in models] == ["ease", "vae", "gmf", "popularity"]
    run = load(runs / "ease", "cpu").run
    digest = run.loaded_digest[:16]
    assert (models[0]["digest"], models[0]["num_items"]) == (digest, run.num_items)
    now = datetime.now(UTC)
    for model in models:
        assert now - timedelta(hours=1) < datetime.fromisoformat(model["loaded_at"]) <= now


def test_a_run_that_is_not_served_is_refused_with_those_that_are(client: TestClient) -> None:
    error = client.get("/v1/items", params={"model": "x"}).json()["error"]
    assert error["code"] == "unknown_model"
    says(error["message"], "x", "ease", "vae", "gmf", "popularity")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "users"),
        ({"users": []}, "users"),
        ({"users": [{}]}, "users.0"),
        ({"users": [{"user_id": 1.5}]}, "users.0.user_id"),
        ({"users": [{"history": [1, None]}]}, "users.0.history.1"),
        ({"users": [{"history": [2**63]}]}, "users.0.history.0"),
        ({"users": [{"user_id": 1}], "k": 0}, "k"),
        ({"users": [{"user_id": 1}], "k": 1001}, "k"),
        ({"users": [{"user_id": 1}] * 257}, "users"),
        ({"users": [{"user_id": 1}], "model": "other"}, "model"),
        ({"users": [{"user_id": 1}], "colour": 1}, "colour"),
        ([], None),
    ],
)
def test_errors_name_the_wrong_field_of_a_body(
    client: TestClient, body: object, field: object
) -> None:
    response = client.post("/v1/recommend", json=body)
    assert response.status_code == 422
    error = response.json()["error"]
    assert set(error) == {"code", "message", "field"}
    assert error["field"] == field


@pytest.mark.parametrize(
    ("path", "body", "field", "meant"),
    [
        ("recommend", {"user": [{"user_id": 1}]}, "user", "users"),
        ("recommend", {"users": [{"user": 1}]}, "users.0.user", "user_id"),
        ("recommend", {"users": [{"user_id": 1}], "k": 0, "N": 5}, "N", "k"),
        ("similar", {"items": [1]}, "items", "item_ids"),
    ],
)
def test_an_unknown_field_is_named_first_with_the_known_one(
    client: TestClient, path: str, body: object, field: str, meant: str
) -> None:
    error = client.post(f"/v1/{path}", json=body).json()["error"]
    assert error["field"] == field
    says(error["message"], meant)


@pytest.mark.parametrize("user_id", [1.5, True, "x" * 1025, 2**63])
def test_the_error_of_a_wrong_id_says_what_is_allowed(client: TestClient, user_id: object) -> None:
    response = client.post("/v1/recommend", json={"users": [{"user_id": user_id}]})
    error = response.json()["error"]
    assert (error["code"], error["field"]) == ("invalid", "users.0.user_id")
    says(error["message"], 64, "1,024")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b'{"users":[{"user_id":"\\ud800"}]}',
        b"[" * 100_000,
        b'{"users":[{"user_id":' + b"9" * 5000 + b"}]}",
    ],
)
def test_unsound_json_is_refused(client: TestClient, content: bytes) -> None:
    response = client.post(
        "/v1/recommend", content=content, headers={"content-type": "application/json"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid")


def test_other_paths_methods_and_types_are_refused_in_the_same_shape(client: TestClient) -> None:
    for method, path, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/recommend", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/healthz/", 404, "not_found"),
        ("GET", "//elsewhere.example/healthz/", 404, "not_found"),
    ):
        response = client.request(method, path, follow_redirects=False)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert client.get("/v1/recommend").headers["allow"] == "POST"
    assert client.head("/v1/models").status_code == client.head("/healthz").status_code == 200
    for path in ("/v1/recommend", "/v1/similar", "/v1/reload"):
        for kind in ({}, {"content-type": "text/plain"}):
            response = client.post(path, content=b"{}", headers=kind)
            assert response.status_code == 415


def test_an_upgrade_is_refused_as_its_body_is_lost(client: TestClient) -> None:
    """Java's client asks for HTTP/2 by an upgrade unless it is set to HTTP/1.1."""
    body = {"users": [{"user_id": KNOWN}]}
    upgrade = {"connection": "Upgrade", "upgrade": "h2c"}
    response = client.post("/v1/recommend", json=body, headers=upgrade)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request")


def test_a_body_that_is_too_long_is_refused_with_and_without_a_declared_length(runs: Path) -> None:
    with serving(runs / "ease", max_body_bytes=100) as (client, _):
        body = json.dumps({"users": [{"user_id": KNOWN}]}).encode()
        headers = {"content-type": "application/json"}
        assert client.post("/v1/recommend", content=body, headers=headers).status_code == 200
        longer = body + b" " * 100
        assert client.post("/v1/recommend", content=longer, headers=headers).status_code == 413
        chunks = iter([body, b" " * 100])
        response = client.post("/v1/recommend", content=chunks, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_every_path_but_probes_needs_the_token(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    with serving(runs / "ease", host="0.0.0.0", token_file=tmp_path / "token") as (client, _):
        assert client.get("/v1/models").status_code == 200
        for scheme in ("bearer", "BEARER", "Bearer "):  # RFC 9110: in any case, one space or more
            client.headers["authorization"] = f"{scheme} 0123456789abcdef"
            assert client.get("/v1/models").status_code == 200
        del client.headers["authorization"]
        for given in (
            {},
            {"authorization": "Bearer 0123456789abcdeg"},
            {"authorization": "Basic 0123456789abcdef"},
            {"authorization": "é"},
        ):
            for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere"):
                response = client.get(path, headers={k: v.encode() for k, v in given.items()})
                assert response.status_code == 401
                assert response.json()["error"]["code"] == "unauthorized"
        for path in ("/healthz", "/readyz", "/", "/page.js", "/page.css", "/icon.svg"):
            assert client.get(path).status_code == 200


OWN_NAMES = ("127.0.0.1", "127.0.0.1:8000", "LOCALHOST:80", "localhost.", "[::1]", "[::1]:8000")
OTHER_NAMES = ("evil.example:8000", "127.0.0.1.evil.example", "localhost.evil", "")
MALFORMED_NAMES = ("[::1", "localhost:", "a@127.0.0.1", "127.0.0.1, evil.example", "é")


def status_of(client: TestClient, host: str, path: str = "/v1/models") -> int:
    return client.get(path, headers={"host": host.encode()}).status_code


def test_a_name_that_another_site_leads_here_is_refused(runs: Path) -> None:
    with serving(runs / "ease", allowed_hosts=["Shop.example."]) as (client, _):
        for host in (*OWN_NAMES, "10.0.0.7:8000", "shop.example", "SHOP.example.:80"):
            assert status_of(client, host) == 200, host
        for host in (*OTHER_NAMES, *MALFORMED_NAMES, "sub.shop.example"):
            for path in ("/v1/models", "/v1/recommend", "/", "/healthz", "/metrics"):
                assert status_of(client, host, path) == 421, (host, path)
        response = client.get("/v1/models", headers={"host": "evil.example"})
        assert response.json()["error"]["code"] == "misdirected"
        assert "evil" not in response.text
        both = [("host", "localhost"), ("host", "evil.example")]
        assert client.get("/v1/models", headers=both).status_code == 421


def test_with_a_token_names_are_checked_only_if_some_are_given(runs: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with serving(runs / "ease", token_file=token) as (client, _):
        assert status_of(client, "shop.example") == 200
    with serving(runs / "ease", token_file=token, allowed_hosts=["shop.example"]) as (client, _):
        assert status_of(client, "shop.example") == 200
        assert status_of(client, "evil.example") == 421


def test_the_names_of_runs_are_in_the_document(runs: Path) -> None:
    with serving(runs / "ease") as (client, _):
        described = client.get("/openapi.json").json()["components"]["schemas"]
    assert described["RecommendBody"]["properties"]["model"]["anyOf"][0]["enum"] == ["ease"]


RESPONSES = {one.path: one.response for one in ENDPOINTS.values()}


def test_examples_of_the_document_get_documented_answers(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            example = None
            if "requestBody" in operation:
                example = operation["requestBody"]["content"]["application/json"]["example"]
            params = {
                parameter["name"]: parameter["schema"]["examples"][0]
                for parameter in operation.get("parameters", ())
                if parameter["required"]
            }
            response = client.request(method, path, json=example, params=params)
            assert response.status_code == 200, (path, response.text)
            RESPONSES[path].model_validate_json(response.content, strict=True, extra="forbid")


def test_answers_name_only_the_users_of_the_request(client: TestClient) -> None:
    naming = {
        path
        for path, response in RESPONSES.items()
        if "user_id" in json.dumps(response.model_json_schema())
    }
    assert naming == {"/v1/recommend", "/v1/history"}
    users = [{"user_id": KNOWN}, {"history": [1, 5]}]
    answers = recommend(client, users=users)["answers"]
    assert [answer["user_id"] for answer in answers] == [KNOWN, None]
    assert client.get("/v1/history", params={"user_id": KNOWN}).json()["user_id"] == KNOWN
    assert client.get("/v1/history").status_code == 422


def test_a_reload_takes_no_model(client: TestClient) -> None:
    assert client.post("/v1/reload", json={"model": "vae"}).status_code == 422


def test_answers_about_people_are_not_stored(client: TestClient) -> None:
    body = {"users": [{"user_id": FIRST_USER}]}
    for response in (
        client.post("/v1/recommend", json=body),
        client.post("/v1/recommend", json={}),
        client.get("/v1/history", params={"user_id": FIRST_USER}),
    ):
        assert response.headers["cache-control"] == "no-store"


def test_a_body_with_a_byte_order_mark_is_read_and_a_packed_one_is_not(client: TestClient) -> None:
    content = b'\xef\xbb\xbf{"users": [{"history": [1]}]}'
    headers = {"content-type": "application/json"}
    assert client.post("/v1/recommend", content=content, headers=headers).status_code == 200
    headers["content-encoding"] = "gzip"
    packed = gzip.compress(content)
    response = client.post("/v1/recommend", content=packed, headers=headers)
    assert response.status_code == 415
    says(response.json()["error"]["message"], "content-encoding", "gzip")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_a_body_in_another_encoding_is_refused_as_that(client: TestClient, encoding: str) -> None:
    for charset in ("", f"; charset={encoding}"):
        headers = {"content-type": f"application/json{charset}"}
        content = '{"users": [{"history": [1]}]}'.encode(encoding)
        response = client.post("/v1/recommend", content=content, headers=headers)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (422, "invalid")
        says(error["message"], encoding, "UTF-8")


def test_a_new_token_takes_the_place_of_the_old_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.serve.app.LOOK_EVERY_S", 0.05)
    path = tmp_path / "token"
    path.write_text("a token of the past".replace(" ", "-"))

    def put(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(path)

    def status(token: str) -> int:
        headers = {"authorization": f"Bearer {token}"}
        return int(client.get("/v1/models", headers=headers).status_code)

    def wait_for(condition: Callable[[], bool]) -> None:
        ends = monotonic() + 30
        while not condition():
            assert monotonic() < ends
            sleep(0.1)

    with serving(runs / "popularity", token_file=path) as (client, _):
        good = "a-token-of-the-past"
        for number, bad in enumerate(("", "short", "two words of a token", None)):
            if bad is None:
                path.unlink()
            else:
                put(bad)
            wait_for(lambda: "token_file" in str(client.get("/v1/models").json()))
            assert (status(good), status(bad or "none"), status("")) == (200, 401, 401)
            old, good = good, f"a-token-of-today-{number}"
            put(good)
            wait_for(lambda good=good: status(good) == 200)  # type: ignore[misc]
            assert status(old) == 401
            client.headers["authorization"] = f"Bearer {good}"
            assert client.get("/v1/models").json()["reload_failed"] is None


def test_a_token_file_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"\xef\xbb\xbfs3cret-of-sixteen\r\n")
    assert ServeConfig(token_file=path).token() == b"s3cret-of-sixteen"


def test_a_service_is_started_in_the_main_thread_without_a_loop(runs: Path) -> None:
    with ThreadPoolExecutor(1) as pool, raises(UnsupportedError, "foretaste serve RUN"):
        pool.submit(serve, [runs / "ease"], ServeConfig(port=0)).result(60)

    async def cell() -> None:
        serve([runs / "ease"], ServeConfig(port=0))

    with raises(UnsupportedError, "foretaste serve RUN"):
        asyncio.run(cell())
