"""The script of the page on serving: collected events train the next model."""

from __future__ import annotations

import itertools
import re
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from foretaste.recommend import load
from foretaste.serve.events import EventStore
from tests import programs
from tests.cli.conftest import Done, call
from tests.databases import require_adbc
from tests.docs.pages import page
from tests.messages import says
from tests.scripts import run_script
from tests.serve import processes

ROWS = "".join(f"{user},{(user * 5 + step * step) % 12},{step}\n" for user in range(40)
               for step in range(4))  # fmt: skip
HEADINGS = "user_id,item_id,timestamp\n"
ITEMS = "item_id,title\n" + "".join(f"{item},Wine {item}\n" for item in (*range(12), 99))
TRAIN = "train ease ratings.csv --items items.csv --protocol none --device cpu"


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the script uses GNU mv"),
]


PROGRAMS = Path("bin")
"""Programs that stand in for others while the script runs."""
NOWHERE = "http://127.0.0.1:9"
NIGHTS = itertools.count()
"""Days from today on which the script runs; the script names datasets by the second."""


@pytest.fixture(autouse=True)
def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the page's script and its programs to the current folder."""
    require_adbc()
    programs.find("curl")
    monkeypatch.chdir(tmp_path)
    (script,) = (block for block in page("serving.md").blocks if block.title == "nightly.sh")
    Path("nightly.sh").write_text(script.text)
    date = PROGRAMS / "date"
    date.parent.mkdir()
    date.write_text(f'#!/bin/sh\nexec {programs.find("date")} -d "$NIGHT days" "$@"\n')
    date.chmod(0o755)


def night(*url: str) -> Done:
    """Run the script."""
    env = {"NIGHT": str(next(NIGHTS))}
    return run_script(["sh", "nightly.sh", *url], PROGRAMS.absolute(), env)


def train_first(rows: str) -> None:
    """Train the model that answers on the first night."""
    Path("ratings.csv").write_text(HEADINGS + rows)
    Path("items.csv").write_text(ITEMS)
    assert call(*TRAIN.split(), "--run", "runs/first").status == 0
    Path("runs/current").symlink_to("first")


def test_collected_events_are_trained_and_served(tmp_path: Path) -> None:
    train_first(ROWS)
    with processes.serve(
        "runs/current", "--events", "events.db", "--deadline-s", 60, cwd=tmp_path
    ) as served:
        events = [
            {"event_id": item, "user_id": 77, "item_id": item, "time": item}
            for item in (1, 2, 99, 98)
        ]
        _, counts = served.ask("POST", "/v1/events", {"events": events})
        assert counts == {"new": 4, "repeated": 0, "unknown_items": 2}
        _, counts = served.ask("POST", "/v1/events/withdraw", {"event_ids": [98]})
        assert counts == {"withdrawn": 1, "not_kept": 0}
        body = {"users": [{"user_id": 77}], "k": 3}
        found = [served.ask("POST", "/v1/recommend", body)]
        is_done = threading.Event()

        def ask() -> None:
            while not is_done.wait(0.02):
                found.append(served.ask("POST", "/v1/recommend", body))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            done = night(f"http://127.0.0.1:{served.port}")
        finally:
            is_done.set()
            asking.join()
        assert done.status == 0, done.err
        found.append(served.ask("POST", "/v1/recommend", body))
        assert {status for status, _ in found} == {200}
        first, last = found[0][1], found[-1][1]
        assert len({answer["digest"] for _, answer in found}) == 2
        assert (first["answers"][0]["known"], last["answers"][0]["known"]) == (False, True)
        _, items = served.ask("GET", "/v1/items?query=99")
        assert [(item["item_id"], item["title"]) for item in items["items"]] == [(99, "Wine 99")]
        _, items = served.ask("GET", "/v1/items?query=98")
        assert items["items"] == [], "it was withdrawn"
        done = night()
        assert (done.status, done.out.splitlines()[-1]) == (0, "nothing new")


def test_a_product_that_came_overnight_is_listed_in_the_morning(tmp_path: Path) -> None:
    Path("ratings.csv").write_text(HEADINGS + ROWS)
    kinds = "".join(f"{item},Wine {item},{'abc'[item % 3]}\n" for item in range(12))
    Path("items.csv").write_text(f"item_id,title,kind\n{kinds}")
    assert call(*TRAIN.split(), "--features", "kind", "--run", "runs/first").status == 0
    Path("runs/current").symlink_to("first")
    body = {"users": [{"user_id": 1}], "k": 50, "candidates": [3, 8, 200]}
    with processes.serve("runs/current", "--events", "events.db", cwd=tmp_path) as served:
        url = f"http://127.0.0.1:{served.port}"
        done = night(url)
        assert (done.status, done.out.splitlines()[-1]) == (0, "nothing new")
        _, before = served.ask("POST", "/v1/recommend", body)
        with Path("items.csv").open("a") as items:
            items.write("200,Wine 200,a\n")
        done = night(url)
        assert done.status == 0, done.err
        assert "nothing new to compare on" in done.out
        assert not list(Path("runs").glob("*-try"))
        _, after = served.ask("POST", "/v1/recommend", body)
        listed = [
            {item["item_id"]: item["title"] for item in found["answers"][0]["items"]}
            for found in (before, after)
        ]
        assert listed[1] == listed[0] | {200: "Wine 200"}
        assert 200 not in listed[0]
        _, found = served.ask("GET", "/v1/items?query=wine%20200")
        assert found["items"] == [{"item_id": 200, "title": "Wine 200"}]
        _, found = served.ask("POST", "/v1/similar", {"item_ids": [200], "k": 3})
        assert found["answers"][0]["known"]
        event = {"event_id": 1, "user_id": 1, "item_id": 200, "time": 5}
        _, counts = served.ask("POST", "/v1/events", {"events": [event]})
        assert counts == {"new": 1, "repeated": 0, "unknown_items": 0}
        _, after = served.ask("POST", "/v1/recommend", body)
        assert 200 not in {item["item_id"] for item in after["answers"][0]["items"]}


def test_a_new_dislike_is_news() -> None:
    """No training pair changes, but the next model leaves one more item out of a list."""
    Path("items.csv").write_text(ITEMS)
    rated = "user_id,item_id,timestamp,rating\n" + "".join(f"{row},5\n" for row in ROWS.split())
    Path("ratings.csv").write_text(rated)
    prepare = "prepare ratings.csv --items items.csv --protocol none --min-rating 3"
    assert call(*prepare.split(), "--output", "datasets/first").status == 0
    assert call("train", "ease", "datasets/first", "--run", "runs/first").status == 0
    Path("runs/current").symlink_to("first")
    with closing(EventStore("events.db")) as store:
        store.create()
    script = Path("nightly.sh").read_text()
    Path("nightly.sh").write_text(script.replace("SELECT *,", "SELECT *, 5 AS rating,"))
    done = night()
    assert (done.status, done.out.splitlines()[-1]) == (0, "nothing new"), done.err
    Path("ratings.csv").write_text(f"{rated}1,10,9,1\n")
    # No service is there to load the new run, so the script ends with curl's error.
    done = night(NOWHERE)
    assert "nothing new to compare on" in done.out, done.err
    assert Path("runs/current").readlink() != Path("first")
    (before,), (after,) = (load(f"runs/{run}").recommend(1, k=12) for run in ("first", "current"))
    assert after.item_ids == [item for item in before.item_ids if item != 10]
    assert 10 in before.item_ids


def test_a_trial_that_is_clearly_worse_stops_the_night() -> None:
    # Two tastes: items 0 to 5, and 6 to 11. Each user has four of one, and takes a fifth today.
    taken = [(user, user % 2 * 6 + (user + step) % 6, step) for user in range(60)
             for step in range(5)]  # fmt: skip
    train_first("".join("{},{},{}\n".format(*row) for row in taken if row[2] < 4))
    rows = [*taken, *((user, (user + step) % 12, 9) for user in range(1000, 1600)
                      for step in (0, 6))]  # fmt: skip
    # Six hundred strangers come with pairs across the tastes: the served model knows none of them.
    Path("ratings.csv").write_text(HEADINGS + "".join("{},{},{}\n".format(*row) for row in rows))
    with closing(EventStore("events.db")) as store:
        store.create()
    done = night(NOWHERE)
    assert done.status != 0
    trial, scores = re.compile(r"runs/\S+-try"), re.compile(r"ndcg@100 [^)]*\)")
    says(done.err, trial, "runs/current", scores, 30, re.compile(r"\d+%"))
    assert Path("runs/current").readlink() == Path("first")
    assert len(list(Path("runs").iterdir())) == 3, "no run but the trial is beside first, current"
