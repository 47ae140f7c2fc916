"""Events through the service: stored before the answer, and in the next list of any process."""

from __future__ import annotations

import itertools
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from time import time as clock
from typing import Any

import pytest
from starlette.testclient import TestClient

import foretaste
from foretaste import __version__
from foretaste.data import open_dataset
from foretaste.errors import SettingError
from foretaste.recommend import load
from foretaste.runs import Run
from foretaste.serve import ServeConfig, serve
from foretaste.serve.errors import ServiceError, events_unavailable
from foretaste.serve.events import EventStore
from foretaste.serve.models import ServedModel
from foretaste.serve.schemas import RecommendBody, User
from tests.cli.conftest import call
from tests.data.test_seen import seen_of
from tests.databases import items_of, require_adbc, write_sqlite
from tests.messages import raises, says
from tests.runs.tiny import FIRST_USER, make_dataset, make_run
from tests.serve import processes
from tests.serve.conftest import serving

KNOWN = FIRST_USER
NUMBERS = itertools.count()


def kept(client: TestClient, *pairs: tuple[Any, Any], **fields: Any) -> Any:
    """The answer to events of users and items, each of them new."""
    events = [
        {"event_id": f"event {next(NUMBERS)}", "user_id": user, "item_id": item} | fields
        for user, item in pairs
    ]
    response = client.post("/v1/events", json={"events": events})
    assert response.status_code == 200, response.text
    return response.json()


def lists(client: TestClient, model: str, *users: object, k: int = 4) -> Any:
    asked = [{"user_id": user} for user in users]
    body = {"model": model, "users": asked, "k": k}
    return client.post("/v1/recommend", json=body).json()["answers"]


def items(answer: Any) -> list[object]:
    return [item["item_id"] for item in answer["items"]]


@pytest.mark.parametrize("model", ["ease", "vae", "gmf", "popularity"])
def test_the_next_list_reflects_events(runs: Path, tmp_path: Path, model: str) -> None:
    """The next list reflects events of a new user, and of a user whose history grows."""
    with serving(runs / model, events=str(tmp_path / "events.db")) as (client, _):
        (before,) = lists(client, model, KNOWN)
        liked = items(before)[0]
        assert kept(client, (KNOWN, liked), (4001, 1), (4001, 5)) == {
            "new": 3, "repeated": 0, "unknown_items": 0
        }  # fmt: skip
        answers = grown, new, nobody = lists(client, model, str(KNOWN), 4001, "nobody")
        # As many users, because the last bits of a score depend on the size of the batch.
        users = [{"user_id": KNOWN, "history": [liked]}, {"history": [1, 5]}, {"user_id": "nobody"}]
        asked = {"users": users, "k": 4}
        expected = client.post("/v1/recommend", json=asked).json()["answers"]
        assert [one["items"] for one in answers] == [one["items"] for one in expected]
        assert liked not in items(grown)
        assert not {1, 5} & set(items(new))
        assert (new["known"], nobody["known"]) == (False, False)
        says(nobody["reason"])
        assert new["reason"] is None


def test_withdrawn_events_are_in_no_list(runs: Path, tmp_path: Path) -> None:
    def withdraw(*ids: object) -> Any:
        return client.post("/v1/events/withdraw", json={"event_ids": ids})

    with serving(runs / "ease", events=str(tmp_path / "events.db")) as (client, _):
        before = lists(client, "ease", KNOWN)
        event = {"event_id": 7, "user_id": KNOWN, "item_id": items(before[0])[0]}
        client.post("/v1/events", json={"events": [event | {"event_type": "purchase"}]})
        assert lists(client, "ease", KNOWN) != before
        assert withdraw("7", 7, "other").json() == {"withdrawn": 1, "not_kept": 1}
        assert lists(client, "ease", KNOWN) == before
        assert 'foretaste_events_total{outcome="withdrawn"} 1.0' in client.get("/metrics").text
        assert withdraw().status_code == withdraw("").status_code == 422
        for number in (1, 2):
            event = {
                "event_id": f"again {number}",
                "user_id": KNOWN,
                "item_id": items(before[0])[0],
            }
            client.post("/v1/events", json={"events": [event]})
        of_user = client.post("/v1/events/withdraw", json={"user_ids": [KNOWN]})
        assert of_user.json() == {"withdrawn": 2, "not_kept": 0}
        assert lists(client, "ease", KNOWN) == before
    with serving(runs / "ease") as (client, _):
        added = client.post("/v1/events", json={"events": [event]})
        for response in (added, withdraw("7")):
            assert (response.status_code, response.json()["error"]["code"]) == (404, "no_events")


def test_a_dislike_is_in_no_list_and_teaches_nothing(runs: Path, tmp_path: Path) -> None:
    def found(*users: object, **options: object) -> list[list[object]]:
        body = {"users": [{"user_id": user} for user in users], "k": 1000, **options}
        answers = client.post("/v1/recommend", json=body).json()["answers"]
        return [items(answer) for answer in answers]

    with serving(runs / "ease", events=str(tmp_path / "events.db")) as (client, _):
        before, popular = found(KNOWN, 4001)
        assert found(KNOWN) == [before], "from the cache"
        first, second = before[0], popular[1]
        kept(client, (KNOWN, first), (4001, second), event_type="dislike")
        without = [[*before[1:]], [item for item in popular if item != second]]
        assert found(KNOWN, 4001) == without
        assert first in found(KNOWN, include_seen=True)[0]
        history = client.get("/v1/history", params={"user_id": str(KNOWN)}).json()
        assert first not in {item["item_id"] for item in history["items"]}
        # The last event decides, regardless of earlier events.
        kept(client, (4001, second), event_type="purchase")
        users = {"users": [{"history": [second]}], "k": 1000}
        (folded,) = client.post("/v1/recommend", json=users).json()["answers"]
        assert found(4001) == [items(folded)]
        kept(client, (4001, second), event_type="dislike")
        assert found(KNOWN, 4001) == without
        client.post("/v1/events/withdraw", json={"user_ids": [KNOWN, 4001]})
        assert found(KNOWN, 4001) == [before, popular]


def test_dislikes_are_read_back_by_a_preparation(runs: Path, tmp_path: Path) -> None:
    require_adbc()
    place = tmp_path / "events.db"
    with serving(runs / "ease", events=str(place)) as (client, _):
        kept(client, (1, 5), (1, 6), (2, 5), (2, 6), event_type="purchase")
        kept(client, (1, 7), (2, 6), event_type="dislike")
        kept(client, (3, 7), event_type="purchase")
        event = {"event_id": "gone", "user_id": 3, "item_id": 5, "event_type": "dislike"}
        client.post("/v1/events", json={"events": [event]})
        client.post("/v1/events/withdraw", json={"event_ids": ["gone"]})
    query = "SELECT * FROM events WHERE user_id IS NOT NULL"
    dataset = foretaste.prepare(
        f"sqlite:///{place}", tmp_path / "data", query=query, protocol="none",
        event_column="event_type", events=["purchase=4", "dislike=seen"],
    )  # fmt: skip
    assert seen_of(dataset) == {(1, 7)}


def test_an_older_database_gets_the_index(tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    with closing(EventStore(str(place))) as store:
        store.create()
    with closing(sqlite3.connect(place)) as database:
        database.execute("DROP INDEX events_of_user")
        database.execute("CREATE INDEX events_in_order ON events (user_id, time)")
    with closing(EventStore(str(place))) as store:
        store.create()
    with closing(sqlite3.connect(place)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
        plan = database.execute(
            "EXPLAIN QUERY PLAN SELECT user_id, item_id, event_type FROM events "
            "WHERE user_id IN ('1') ORDER BY time, sequence"
        ).fetchall()
    assert ("events_of_user",) in names
    assert ("events_in_order",) not in names
    assert "COVERING INDEX events_of_user" in plan[0][-1]


def test_events_are_of_their_user_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_dataset(tmp_path, spell="i{}"), "ease")
    with serving(run.path, events=str(tmp_path / "events.db")) as (client, _):
        kept(client, ("None", "i1"))
        users = [{"user_id": "None"}, {"history": []}, {"user_id": ""}]
        answers = client.post("/v1/recommend", json={"users": users}).json()["answers"]
        assert [one["reason"] is None for one in answers] == [True, False, False]


def test_events_of_items_that_are_unknown_are_kept(runs: Path, tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    with serving(runs / "ease", events=str(place)) as (client, _):
        counts = kept(client, (4001, 999999), (4001, 1), time=12.5)
        assert counts == {"new": 2, "repeated": 0, "unknown_items": 1}
        event = {"event_id": "event 0", "user_id": 9, "item_id": 9}
        first, second = (
            client.post("/v1/events", json={"events": [event, event | {"event_id": "x"}]}).json()
            for _ in range(2)
        )
        assert (first["new"] + first["repeated"], second) == (2, second | {"new": 0})
        text = client.get("/metrics").text
        assert 'foretaste_events_total{outcome="repeated"}' in text
        (listed,) = lists(client, "ease", 4001)
        assert items(listed) == items_of_history(runs / "ease", 1)
    with closing(sqlite3.connect(place)) as connection:
        rows = connection.execute("SELECT user_id, item_id, time FROM events").fetchall()
    assert ("4001", "999999", 12.5) in rows


def test_times_of_events_become_seconds(runs: Path, tmp_path: Path) -> None:
    place, now = tmp_path / "events.db", clock()
    times = (12.5, 0, "2024-05-31T09:30:00Z", "2024-05-31T11:30:00.25+02:00", now + 80_000, None)
    with serving(runs / "ease", events=str(place)) as (client, _):
        for number, time in enumerate(times):
            kept(client, (7, number), time=time)
    with closing(sqlite3.connect(place)) as connection:
        found = connection.execute("SELECT time FROM events ORDER BY item_id").fetchall()
    *stored, last = (time for (time,) in found)
    assert stored == [12.5, 0, 1_717_147_800, 1_717_147_800.25, now + 80_000]
    assert 0 <= last - now < 600


def items_of_history(run: Path, item: int) -> list[int | str]:
    return list(load(run, "cpu").recommend_for([[item]], 4)[0].item_ids)


def test_events_that_cannot_be_kept_are_refused(runs: Path, tmp_path: Path) -> None:
    event = {"event_id": "a", "user_id": 1, "item_id": 1}
    with serving(runs / "ease", events=str(tmp_path / "events.db")) as (client, _):
        for name, value in (
            ("event_id", ""),
            ("user_id", "b\0"),
            ("user_id", 1.5),
            ("item_id", "é" * 513),
            ("time", "12.5"),
            ("time", False),
            ("time", "2024-05-31T09:30:00"),
            ("time", "2024-05-31"),
            ("time", "2024-31-05T09:30:00Z"),
            ("time", -5),
            ("time", 1_700_000_000_000),
            ("time", 4_070_908_800),
            ("time", "2099-01-01T00:00:00Z"),
            ("time", clock() + 2 * 86_400),
        ):
            response = client.post("/v1/events", json={"events": [event | {name: value}]})
            error = response.json()["error"]
            assert (response.status_code, error["field"]) == (422, f"events.0.{name}")
            if name == "time" and value is not False:
                says(error["message"], "seconds since 1970")
        assert client.post("/v1/events", json={"events": []}).status_code == 422


def test_ids_of_another_type_are_refused(runs: Path, tmp_path: Path) -> None:
    """One text id would turn all ids of the next training into text."""
    event = {"event_id": "a", "user_id": 1, "item_id": 1}
    user = {"users": [{"history": [1]}]}
    with serving(runs / "ease", events=str(tmp_path / "events.db")) as (client, service):
        for path, body, wrong, field in (
            ("events", {"events": [event, event | {"item_id": "zzz"}]}, "zzz", "events.1.item_id"),
            ("events", {"events": [event | {"user_id": "007"}]}, "007", "events.0.user_id"),
            ("recommend", {"users": [{"history": [1, "zzz"]}]}, "zzz", "users.0.history"),
            ("recommend", user | {"candidates": ["zzz"]}, "zzz", "candidates"),
            ("recommend", user | {"exclude": ["1.0"]}, "1.0", "exclude"),
            ("similar", {"item_ids": [1, "zzz"]}, "zzz", "item_ids"),
        ):
            response = client.post(f"/v1/{path}", json=body)
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["field"]) == (422, "invalid", field)
            kind = "user" if "user_id" in field else "item"
            says(error["message"], wrong, field, kind)
        assert items_of(service.event_store, ["1", "007"]) == {}
        assert kept(client, ("4001", "1"), ("4001", 999999))["unknown_items"] == 1


def test_text_ids_take_numbers_by_their_spelling(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_dataset(tmp_path, spell="0{}"), "ease")
    with serving(run.path, events=str(tmp_path / "events.db")) as (client, _):
        assert kept(client, (7, 10), ("zoe", "01"))["unknown_items"] == 1


def test_a_database_that_fails_is_no_silent_loss(runs: Path, tmp_path: Path) -> None:
    """Nothing is acknowledged, and no list lacks events."""
    place = tmp_path / "events.db"
    with serving(runs / "ease", events=str(place)) as (client, _):
        kept(client, (4001, 1))
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("DROP TABLE events")
        event = {"event_id": "a", "user_id": 1, "item_id": 1}
        for path, body in (
            ("/v1/events", {"events": [event]}),
            ("/v1/recommend", {"users": [{"user_id": 4001}]}),
        ):
            response = client.post(path, json=body)
            code = response.json()["error"]["code"]
            assert (response.status_code, code) == (503, "events_unavailable")
        assert client.post("/v1/recommend", json={"users": [{"history": [1]}]}).status_code == 200


def test_users_without_a_name_are_answered_if_the_events_cannot_be_read(
    runs: Path,
) -> None:
    """The batch has named users too, who are all refused after one try."""
    tries = []

    class Lost:
        def events_of(self, user_ids: object) -> Any:
            tries.append(user_ids)
            raise events_unavailable()

    served = ServedModel.load("ease", Run.open(runs / "ease"), "cpu")
    bodies = [
        RecommendBody(users=[User(user_id="ana")]),
        RecommendBody(users=[User(history=[1])]),
        RecommendBody(users=[User(history=[1]), User(user_id="ben")]),
    ]
    asked = [served.look_up(body) for body in bodies]
    found = served.recommend(asked, events=Lost())  # type: ignore[arg-type]
    assert [isinstance(one, ServiceError) for one in found] == [True, False, True]
    assert found[1] == served.recommend(asked[1:2])[0]
    assert tries == [{"ana", "ben"}]


COLUMNS = "sequence INTEGER PRIMARY KEY, event_id UNIQUE, user_id, item_id, time"
OURS = f"{COLUMNS}, event_type"


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE events (id)",
        f"CREATE TABLE events ({COLUMNS})",
        f"CREATE TABLE events ({OURS}, more NOT NULL)",
        f"CREATE TABLE kept ({OURS}); CREATE VIEW events AS SELECT * FROM kept",
    ],
)
def test_a_table_that_takes_no_events_is_refused_at_the_start(
    made: str, runs: Path, tmp_path: Path
) -> None:
    for statement in made.split("; "):
        write_sqlite(tmp_path / "shop.db", statement)
    with raises(SettingError, "shop.db", __version__):
        serve([runs / "ease"], ServeConfig(events=str(tmp_path / "shop.db"), port=0))


def test_no_name_is_no_place_of_events(runs: Path) -> None:
    with raises(SettingError, "events", "events.db"):
        serve([runs / "ease"], ServeConfig(events="", port=0))


def test_the_check_of_a_table_leaves_nothing_in_it(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "events.db"))
    store.create()
    store.create()
    assert items_of(store, ["user"]) == {}
    store.close()


@pytest.mark.slow
def test_processes_of_one_database_agree_at_once_and_after_a_start(
    runs: Path, place: str, tmp_path: Path
) -> None:
    require_adbc()
    body = {"users": [{"user_id": 4001}, {"user_id": "no\0body"}], "k": 3}
    events = [{"event_id": number, "user_id": 4001, "item_id": number} for number in (1, 5)]
    arguments = (runs / "ease", "--events", place)
    with processes.serve(*arguments) as first:
        assert first.ask("POST", "/v1/events", {"events": events[:1]})[0] == 200
        with processes.serve(*arguments) as second:
            for number in (1, 5):
                found = [one.ask("POST", "/v1/recommend", body)[1] for one in (second, first)]
                assert found[0] == found[1]
                known, nobody = found[0]["answers"]
                assert number not in items(known)
                assert nobody["reason"].startswith("popularity order")
                assert first.ask("POST", "/v1/events", {"events": events[1:]})[0] == 200
            _, counts = second.ask("POST", "/v1/events", {"events": events[1:]})
            assert counts == {"new": 0, "repeated": 1, "unknown_items": 0}
            # While the services have it open.
            url = place if "://" in place else f"sqlite:///{place}"
            prepared = call("prepare", url, "--protocol", "none", "--output", tmp_path / "shop")
            assert prepared.status == 0, prepared.err
        assert first.ended(signal.SIGTERM)[0] == 0
    dataset = open_dataset(tmp_path / "shop")
    assert (dataset.users.ids(), dataset.items.ids()) == ([4001], [1, 5])
