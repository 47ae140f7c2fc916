"""The command: its process, signals, and mistakes before its start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest

from foretaste.data import Dataset
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.serve import ServeConfig, serve
from foretaste.serve.schemas import MAX_USERS
from tests.messages import raises, says
from tests.runs.tiny import FIRST_USER, make_run
from tests.serve import processes

BODY = {"users": [{"user_id": FIRST_USER}, {"history": [1, 5]}], "k": 2}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc")


@pytest.fixture
def place(runs: Path, tmp_path: Path) -> Path:
    """A copy of a run, to change."""
    return shutil.copytree(runs / "vae", tmp_path / "vae")


def change(place: Path, dataset: Dataset) -> None:
    """Put other weights in the place of a run's."""
    make_run(place.with_name("other"), dataset)
    # Moved, because the service finds nothing if it looks while a tree is removed.
    place.rename(place.with_name("before"))
    place.with_name("other").rename(place)


LOOK_OFTEN = """
from foretaste.serve import app
app.LOOK_EVERY_S = 0.1
"""


def reloaded(served: processes.Served) -> list[str]:
    """The outcome of each load of the runs, in the order of the log."""
    events = [line["event"] for line in served.log()]
    return [event for event in events if event in ("load", "reload", "reload_failed")]


def test_the_command_serves_until_a_signal(runs: Path) -> None:
    command = [sys.executable, "-m", "foretaste", "serve", str(runs / "ease"), "--port", "0"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            url = re.search(r"http://\S+:\d+", process.stdout.readline())
            assert url is not None
            with urlopen(f"{url[0]}/readyz", timeout=processes.LIMIT_S) as answer:
                assert answer.status == 200
            process.terminate()
            assert process.wait(processes.LIMIT_S) == 0
        finally:
            process.kill()


def test_the_service_loads_new_runs_and_drains(place: Path, runs: Path, dataset: Dataset) -> None:
    with processes.serve(place, runs / "ease", patch=LOOK_OFTEN) as served:
        assert served.ask("GET", "/readyz") == (200, {"status": "ready"})
        status, answer = served.ask("POST", "/v1/recommend", BODY)
        assert (status, answer["model"], len(answer["answers"])) == (200, "vae", 2)
        change(place, dataset)
        processes.wait_for(
            lambda: served.ask("POST", "/v1/recommend", BODY)[1]["digest"] != answer["digest"]
        )
        shutil.move(place, place.with_name("away"))
        failed = processes.wait_for(
            lambda: served.ask("GET", "/v1/models")[1]["reload_failed"],
        )
        assert "is not a run: there is no such directory" in failed
        assert served.ask("POST", "/v1/recommend", BODY)[0] == 200
        place.with_name("away").rename(place)
        processes.wait_for(lambda: served.ask("GET", "/v1/models")[1]["reload_failed"] is None)
        processes.wait_for(lambda: reloaded(served) == ["load", "reload", "reload_failed"])
        status, _ = served.ended(signal.SIGHUP)
    assert status == 0


def test_a_body_that_does_not_end_is_ended(runs: Path) -> None:
    """The service waits for one body, and the sender of another body goes away."""
    ask = (
        b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{"
    )
    with processes.serve(runs / "popularity", "--deadline-s", 0.5) as served:
        senders = [
            socket.create_connection(("127.0.0.1", served.port), processes.LIMIT_S)
            for _ in range(2)
        ]
        for sender in senders:
            sender.sendall(ask)
        senders[1].close()
        assert senders[0].recv(12) == b"HTTP/1.1 504"
        senders[0].close()
        status, lines = served.ended(signal.SIGINT)
    assert status == 0
    asked = [line for line in lines if line["event"] == "request"]
    assert sorted(line["status"] for line in asked) == [400, 504]
    assert not any("error" in line for line in asked)


ANSWERS_SLOWLY = """
import time
from foretaste.serve.log import log
from foretaste.serve.models import ServedModel
recommend = ServedModel.recommend
def recommend_slowly(self, bodies, events=None):
    if len(bodies[0].users) > 3:  # no warm-up
        log("answering")
        time.sleep(0.5)
    return recommend(self, bodies, events)
ServedModel.recommend = recommend_slowly
"""


def test_a_signal_lets_requests_under_way_end(runs: Path) -> None:
    with processes.serve(runs / "gmf", "--deadline-s", 60, patch=ANSWERS_SLOWLY) as served:
        many = {"users": [{"history": [n % 12, n % 7]} for n in range(MAX_USERS)], "k": 5}
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(served.ask, "POST", "/v1/recommend", many) for _ in range(4)]
            processes.wait_for(lambda: any(line["event"] == "answering" for line in served.log()))
            status, lines = served.ended(signal.SIGTERM)
            # On a busy machine one may still be sending its body, and is no request yet.
            begun = [one for one in asked if not isinstance(one.exception(), ConnectionError)]
            found = [one.result() for one in begun]
    assert status == 0
    assert found
    assert [one for one in found if "answers" not in one[1]] == []
    assert {(one[0], len(one[1]["answers"])) for one in found} == {(200, MAX_USERS)}
    assert not any("Traceback" in line.get("message", "") for line in lines)


SLEEPY = """
import time
from foretaste.recommend import conditions
evaluate, conditions.DEADLINE_S = conditions.evaluate_condition, 1.0
def evaluate_or_sleep(cursor, condition):
    if condition == "sleep":
        time.sleep(60)
    return evaluate(cursor, condition)
conditions.evaluate_condition = evaluate_or_sleep
"""


def test_a_rule_that_does_not_end_stops_nothing(runs: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"

    def write(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(rules)

    def known() -> tuple[list[str], str | None]:
        found = served.ask("GET", "/v1/models")[1]
        return found["models"][0]["rules"], found["reload_failed"]

    write('one = "item_id > 1"')
    with processes.serve(
        *(runs / "popularity", "--rules-file", rules, "--drain-s", 1), patch=LOOK_OFTEN + SLEEPY
    ) as served:
        write('two = "sleep"')
        found = processes.wait_for(lambda: known()[1])
        says(found, "two", "sleep", 1)
        assert served.ask("POST", "/v1/reload", {})[0] == 409
        assert known() == (["one"], found)
        assert served.ask("POST", "/v1/recommend", BODY | {"rules": ["one"]})[0] == 200
        write('three = "item_id > 3"')
        processes.wait_for(lambda: known() == (["three"], None))
        # The two threads keep sleeping, and a third one starts to sleep.
        write('four = "sleep"')
        began = monotonic()
        status, _ = served.ended(signal.SIGTERM)
        assert monotonic() - began < 20
    assert status == 0


SLOW = """
import time
from foretaste.serve.store import ModelStore
from foretaste.serve.log import log
load = ModelStore.load
def load_slowly(self):
    if self.models:
        log("slow")
        time.sleep(60)
    load(self)
ModelStore.load = load_slowly
"""


def test_a_reload_under_way_does_not_hold_the_end_back(runs: Path) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        processes.serve(runs / "popularity", "--drain-s", 1, patch=SLOW) as served,
    ):
        asked = pool.submit(served.ask, "POST", "/v1/reload", {})
        processes.wait_for(lambda: any(line["event"] == "slow" for line in served.log()))
        began = monotonic()
        status, _ = served.ended(signal.SIGTERM)
        assert monotonic() - began < 20
        assert asked.exception() is not None
    assert status == 0


def test_a_run_that_cannot_be_loaded_ends_the_service(place: Path) -> None:
    (place / "best.safetensors").unlink()
    with pytest.raises(AssertionError) as caught, processes.serve(place):
        pass
    says(str(caught.value).splitlines()[-1], place, "best.safetensors", "--resume", place)


def test_mistakes_are_refused_before_anything_is_loaded(runs: Path, tmp_path: Path) -> None:
    with raises(SettingError):
        serve([])
    with raises(RunError, "none"):
        serve([tmp_path / "none"])
    shutil.copytree(runs / "ease", tmp_path / "ease")
    with raises(SettingError, "ease", f"{runs / 'ease'} and {tmp_path / 'ease'}"):
        serve([runs / "ease", tmp_path / "ease"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with raises(SettingError, port, re.compile("Address already[^;]*"), "--host or --port"):
            serve([runs / "ease"], ServeConfig(port=port))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "shop.example"])
def test_an_address_that_others_can_reach_needs_a_token(host: str, tmp_path: Path) -> None:
    with raises(SettingError, host, "--token-file"):
        ServeConfig(host=host)
    (tmp_path / "token").write_text("s3cret-of-sixteen\n")
    assert ServeConfig(host=host, token_file=tmp_path / "token").token() == b"s3cret-of-sixteen"


@pytest.mark.parametrize("host", ["127.1.2.3", "::1", "localhost"])
def test_an_address_of_this_machine_needs_no_token(host: str) -> None:
    assert ServeConfig(host=host).token() is None


@pytest.mark.parametrize("name", ["", "https://a.b", "*.a.b"])
def test_an_allowed_host_that_is_no_name_is_refused(name: str) -> None:
    with raises(SettingError, "allowed_hosts", f"'{name}'"):
        ServeConfig(allowed_hosts=("a.b", name))


@pytest.mark.parametrize("content", [b"short\n", b"two words of a token", b"\xff" * 20])
def test_a_wrong_token_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    config = ServeConfig(token_file=tmp_path / "token")
    with raises(SettingError, "token_file", "token"):
        config.token()


def test_without_the_extra_it_says_what_to_install(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with raises(MissingExtraError, re.compile("pip install .* starlette uvicorn uvloop$")):
        serve([runs / "ease"])
