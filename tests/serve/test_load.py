"""Many requests at once: batches, reloads, the bound of the queue, the deadline, the counters."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import socket
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foretaste.data import Dataset
from foretaste.runs.places import training_lock
from foretaste.serve.app import Service
from foretaste.serve.models import ServedModel
from tests.messages import says
from tests.runs.tiny import FIRST_USER, NUM_USERS, make_dataset, make_run
from tests.serve.conftest import VAE, serving

LIMIT_S = 20.0


def some_bodies(number: int) -> list[dict[str, Any]]:
    draw = random.Random(5)
    users = range(FIRST_USER, FIRST_USER + NUM_USERS)

    def user() -> dict[str, Any]:
        history = draw.sample(range(12), 3)
        asked = draw.choice(users)
        return draw.choice(
            [{"user_id": asked}, {"history": history}, {"user_id": asked, "history": history}]
        )

    return [
        {
            "users": [user() for _ in range(draw.randrange(1, 4))],
            "k": draw.randrange(1, 9),
            "exclude": draw.sample(range(12), draw.randrange(3)),
            "candidates": draw.choice([None, None, list(range(6))]),
            "model": draw.choice(["ease", "vae", "gmf"]),
        }
        for _ in range(number)
    ]


def rounded(answer: Any) -> Any:
    return json.loads(json.dumps(answer), parse_float=lambda text: round(float(text), 4))


def held(service: Service, verb: str = "recommend") -> tuple[threading.Event, threading.Semaphore]:
    """Block the service while it scores, until the event is set; each begun batch releases."""
    go, begun = threading.Event(), threading.Semaphore(0)
    for served in service.store.models:
        score = getattr(served, verb)

        def slowly(bodies: Any, score: Any = score, **named: Any) -> Any:
            begun.release()
            assert go.wait(LIMIT_S)
            return score(bodies, **named)

        setattr(served, verb, slowly)
    return go, begun


def test_answers_of_a_batch_equal_answers_to_each_request_alone(runs: Path) -> None:
    bodies = some_bodies(60)
    with serving(*(runs / name for name in ("ease", "vae", "gmf"))) as (client, service):
        alone = [client.post("/v1/recommend", json=body).json() for body in bodies]
        go, begun = held(service)
        with ThreadPoolExecutor(len(bodies)) as pool:
            asked = [pool.submit(client.post, "/v1/recommend", json=bodies[0])]
            assert begun.acquire(timeout=LIMIT_S)
            asked += [pool.submit(client.post, "/v1/recommend", json=body) for body in bodies[1:]]
            while service.batcher.num_waiting < len(bodies) - 1:
                assert not asked[0].done()
            go.set()
            together = [one.result(LIMIT_S).json() for one in asked]
        sizes = client.get("/metrics").text
    for one, other in zip(together, alone, strict=True):
        assert rounded(one) == rounded(other)
    assert counted(sizes, "foretaste_batch_requests_count") < 2 * len(bodies) - 20


def test_requests_beyond_the_queue_must_come_again(runs: Path) -> None:
    body = {"users": [{"user_id": FIRST_USER}]}
    with serving(runs / "ease", queue_requests=2) as (client, service):
        go, begun = held(service)
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(client.post, "/v1/recommend", json=body)]
            assert begun.acquire(timeout=LIMIT_S)
            asked += [pool.submit(client.post, "/v1/recommend", json=body) for _ in range(2)]
            while service.batcher.num_waiting < 2:
                assert not asked[0].done()
            refused = client.post("/v1/recommend", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            assert client.get("/readyz").status_code == 200
            go.set()
            assert [one.result(LIMIT_S).status_code for one in asked] == [200] * 3
        assert client.post("/v1/recommend", json=body).status_code == 200


def test_a_request_past_its_deadline_is_refused_without_work(runs: Path) -> None:
    body = {"users": [{"user_id": FIRST_USER}]}
    scored: list[int] = []
    with serving(runs / "ease", deadline_s=1.0) as (client, service):
        served = service.store.get(None)
        score = served.recommend

        def counting(bodies: Any, **named: Any) -> Any:
            scored.append(len(bodies))
            return score(bodies, **named)

        served.recommend = counting  # type: ignore[method-assign]
        go, begun = held(service)
        with ThreadPoolExecutor(2) as pool:
            under_way = pool.submit(client.post, "/v1/recommend", json=body)
            assert begun.acquire(timeout=LIMIT_S)
            waiting = pool.submit(client.post, "/v1/recommend", json=body)
            for late in (under_way.result(LIMIT_S), waiting.result(LIMIT_S)):
                assert (late.status_code, late.json()["error"]["code"]) == (
                    504,
                    "deadline_exceeded",
                )
            go.set()
        assert client.post("/v1/recommend", json=body).status_code == 200
    assert scored == [1, 1]


@pytest.fixture
def replaced(runs: Path, dataset: Dataset, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A run behind a link, and two other targets of the link with other weights."""
    places = [runs / "vae", tmp_path / "b"]
    run = make_run(places[1], dataset, "vae", **VAE)
    weights = {name: tensor.flip(0) for name, tensor in run.load_weights().items()}
    run.save_weights(weights)
    link = tmp_path / "current"
    link.symlink_to(places[0])
    return link, places


def lead(link: Path, place: Path) -> None:
    beside = link.with_name("next")
    beside.symlink_to(place)
    beside.replace(link)


def test_each_answer_belongs_to_its_digest_while_runs_are_swapped(
    replaced: tuple[Path, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The watch would reload a link that has just moved, so the reloads could not be counted.
    monkeypatch.setattr("foretaste.serve.app.LOOK_EVERY_S", 3600.0)
    link, places = replaced
    bodies = [body | {"model": None} for body in some_bodies(6)]
    with serving(link) as (client, _):

        def answers() -> list[Any]:
            return [rounded(client.post("/v1/recommend", json=body).json()) for body in bodies]

        expected = {}
        for place in (places[1], places[0]):
            lead(link, place)
            assert client.post("/v1/reload", json={}).status_code == 200
            of_place = answers()
            expected[of_place[0]["digest"]] = of_place
        assert len(expected) == 2
        found: list[Any] = []
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.is_set():
                found.extend(enumerate(answers()))

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(ask) for _ in range(2)]
            for number in range(6):
                lead(link, places[1 - number % 2])
                (model,) = client.post("/v1/reload", json={}).json()["models"]
                assert model["name"] == "current"
            is_over.set()
            for one in asking:
                one.result(LIMIT_S)
        for number, answer in found:
            assert answer == expected[answer["digest"]][number]
        assert {answer["digest"] for _, answer in found} == expected.keys()
        metrics = client.get("/metrics").text
        assert counted(metrics, "foretaste_reloads_total", outcome="done") == 8
        assert counted(metrics, "foretaste_reloads_total", outcome="failed") == 0


def test_a_begun_batch_keeps_its_run(
    replaced: tuple[Path, list[Path]],
) -> None:
    link, places = replaced
    body = {"users": [{"user_id": FIRST_USER}]}
    with serving(link) as (client, service):
        before = client.post("/v1/recommend", json=body).json()
        go, begun = held(service)
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(client.post, "/v1/recommend", json=body)
            assert begun.acquire(timeout=LIMIT_S)
            lead(link, places[1])
            (model,) = client.post("/v1/reload", json={}).json()["models"]
            assert model["digest"] != before["digest"]
            go.set()
            assert under_way.result(LIMIT_S).json() == before
        assert client.post("/v1/recommend", json=body).json()["digest"] == model["digest"]


def test_a_run_that_was_swapped_is_let_go(replaced: tuple[Path, list[Path]]) -> None:
    link, places = replaced
    with serving(link) as (client, service):
        client.post("/v1/recommend", json={"users": [{"user_id": FIRST_USER}]})
        before = weakref.ref(service.store.get(None).recommender)
        lead(link, places[1])
        assert client.post("/v1/reload", json={}).status_code == 200
        gc.collect()
        assert before() is None


def test_a_run_that_cannot_be_loaded_changes_nothing(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "ease", tmp_path / "ease")
    body = {"users": [{"user_id": FIRST_USER}]}
    with serving(tmp_path / "ease", runs / "vae") as (client, _):
        before = client.post("/v1/recommend", json=body).json()
        weights = tmp_path / "ease" / "best.safetensors"
        weights.rename(tmp_path / "away")
        failed = client.post("/v1/reload", json={})
        assert (failed.status_code, failed.json()["error"]["code"]) == (409, "reload_failed")
        says(failed.json()["error"]["message"], "ease", "best.safetensors", "--resume", "ease")
        assert client.post("/v1/recommend", json=body).json() == before
        (tmp_path / "away").rename(weights)
        assert client.post("/v1/reload", json={}).status_code == 200


def test_a_run_is_taken_once_its_training_ends(
    runs: Path, dataset: Dataset, tmp_path: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(runs / "ease")
    other = make_run(tmp_path / "other", dataset, "ease", l2=5.0)
    with serving(link) as (client, service):
        lead(link, other.path)
        with training_lock(other.path):
            failed = client.post("/v1/reload", json={})
            assert failed.status_code == 409
            says(failed.json()["error"]["message"], "other", os.getpid(), socket.gethostname())
            assert not service.store.find_changes()
        assert service.store.find_changes()
        assert client.post("/v1/reload", json={}).status_code == 200
        assert service.store.get(None).digest == other.open_weights().digest[:16]


def test_an_unchanged_run_is_not_loaded_again(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(runs / "ease") as (client, service):
        served = service.store.get(None)
        monkeypatch.setattr(ServedModel, "load", None)
        assert client.post("/v1/reload", json={}).status_code == 200
        assert service.store.get(None) is served


def test_a_run_with_ids_of_another_type_is_refused(runs: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    make_run(tmp_path / "text", make_dataset(tmp_path, spell="i{}"), "ease")
    link.symlink_to(runs / "ease")
    with serving(link) as (client, service):
        served = service.store.get(None)
        lead(link, tmp_path / "text")
        failed = client.post("/v1/reload", json={})
        assert (failed.status_code, failed.json()["error"]["code"]) == (409, "reload_failed")
        says(failed.json()["error"]["message"], "text", "i100", "integers", "--like")
        assert service.store.get(None) is served


def test_requests_for_a_reload_during_a_reload_share_the_next_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(runs / "ease") as (client, service):
        begun, go = threading.Semaphore(0), threading.Event()

        def load() -> None:
            begun.release()
            assert go.wait(LIMIT_S)

        monkeypatch.setattr(service.store, "load", load)
        before = counted(client.get("/metrics").text, "foretaste_requests_total")
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(client.post, "/v1/reload", json={}) for _ in range(6)]
            assert begun.acquire(timeout=LIMIT_S)
            # Requests are taken in order of arrival: these came after the others.
            assert client.post("/v1/recommend", json=some_bodies(1)[0] | {"model": None}).is_success
            go.set()
            assert {one.result(LIMIT_S).status_code for one in asked} == {200}
        metrics = client.get("/metrics").text
        assert counted(metrics, "foretaste_requests_total") >= before + 7
        assert counted(metrics, "foretaste_reloads_total") <= 3


def counted(text: str, name: str, **labels: str) -> float:
    """The value of a metric, over all labels but the given ones."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_metrics_count_what_happened(runs: Path) -> None:
    users = [{"user_id": FIRST_USER}, {"user_id": "nobody"}, {"history": [1]}]
    with serving(runs / "ease") as (client, service):
        digest = service.store.get(None).digest
        before = client.get("/metrics").text
        for _ in range(2):
            client.post("/v1/recommend", json={"users": users})
        client.post("/v1/recommend", json={})
        client.get("/nowhere/1")
        client.get("/nowhere/2")
        response = client.get("/metrics")
    text = response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    requests = "foretaste_requests_total"
    assert counted(text, requests, route="/v1/recommend", status="200") == 2
    assert counted(text, requests, route="/v1/recommend", status="422") == 1
    assert counted(text, requests, route="none", status="404") == 2
    assert counted(text, "foretaste_request_seconds_count", route="/v1/recommend") == 3
    assert counted(text, "foretaste_users_total", known="true") == 2
    assert counted(text, "foretaste_users_total", known="false") == 4
    assert counted(text, "foretaste_popularity_lists_total") == 2
    for name, expected in (("requests", 2), ("users", 6)):
        name = f"foretaste_batch_{name}_sum"
        assert counted(text, name) - counted(before, name) == expected
    ages = [s for f in text_string_to_metric_families(text) for s in f.samples if "age" in s.name]
    assert [age.labels for age in ages] == [{"model": "ease", "digest": digest}]


def test_every_request_has_an_id_and_a_line_in_the_log(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(runs / "ease", access_log=True) as (client, service):
        response = client.post(
            "/v1/recommend",
            json={"users": [{"user_id": 1}] * 2},
            headers={"x-request-id": "Order-7.a_b"},
        )
        line = json.loads(capsys.readouterr().err.splitlines()[-1])
        assert response.headers["x-request-id"] == line["request_id"] == "Order-7.a_b"
        found = [line[name] for name in ("event", "method", "path", "status", "model", "users")]
        assert found == ["request", "POST", "/v1/recommend", 200, "ease", 2]
        assert line["digest"] == service.store.get(None).digest
        for odd in (b"x" * 65, b"a b", b'"}', b"\xff", b""):
            response = client.get("/healthz", headers={"x-request-id": odd})
            assert len(response.headers["x-request-id"]) == 16
        capsys.readouterr()
        client.get("/" + "n" * 500 + "%22%0A")
        line = json.loads(capsys.readouterr().err.splitlines()[-1])
        assert (len(line["path"]), line["status"]) == (200, 404)


def test_a_mistake_of_ours_is_answered_and_logged(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(runs / "ease") as (client, service):
        served: Any = service.store.get(None)
        served.recommend = lambda bodies, events: 1 / 0
        response = client.post("/v1/recommend", json={"users": [{"user_id": 1}]})
        assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
        assert "zero" not in response.text
        line = json.loads(capsys.readouterr().err.splitlines()[-1])
        assert "ZeroDivisionError: division by zero" in line["error"]
        assert counted(client.get("/metrics").text, "foretaste_requests_total", status="500") == 1
