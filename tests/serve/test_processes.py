"""The command: one process and several, signals, and mistakes before it begins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foretaste.data import Dataset
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.serve import ServeConfig, serve
from tests.cli.conftest import call
from tests.runs.tiny import FIRST_USER, make_run
from tests.serve import processes

BODY = {"users": [{"user_id": FIRST_USER}, {"history": [1, 5]}], "k": 2}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, workers and /proc")


@pytest.fixture
def place(runs: Path, tmp_path: Path) -> Path:
    """A copy of a run, to change."""
    return shutil.copytree(runs / "vae", tmp_path / "vae")


def change(place: Path, dataset: Dataset) -> None:
    """Put other weights in the place of a run's."""
    make_run(place.with_name("other"), dataset)
    shutil.rmtree(place)
    place.with_name("other").rename(place)


def test_one_process_answers_reloads_and_drains(place: Path, runs: Path, dataset: Dataset) -> None:
    with processes.serve(place, runs / "ease") as served:
        assert served.ask("GET", "/readyz") == (200, {"status": "ready"})
        status, answer = served.ask("POST", "/v1/recommend", BODY)
        assert (status, answer["model"], len(answer["answers"])) == (200, "vae", 2)
        change(place, dataset)
        served.process.send_signal(signal.SIGHUP)
        processes.wait_for(
            lambda: served.ask("POST", "/v1/recommend", BODY)[1]["digest"] != answer["digest"]
        )
        (place / "best.safetensors").unlink()
        served.process.send_signal(signal.SIGHUP)
        failed = processes.wait_for(
            lambda: [line for line in served.log() if line["event"] == "reload_failed"]
        )
        assert "has no best.safetensors" in failed[0]["message"]
        assert served.ask("POST", "/v1/recommend", BODY)[0] == 200
        status, lines = served.ended(signal.SIGTERM)
    assert status == 0
    events = [line["event"] for line in lines if line["event"] != "request"]
    assert events == ["load", "reload", "reload_failed"]
    asked = [line for line in lines if line["event"] == "request"]
    assert {line["path"] for line in asked} == {"/readyz", "/v1/recommend"}


def test_a_head_without_end_is_cut_off(runs: Path) -> None:
    with processes.serve(runs / "popularity") as served:
        for chunk in (b"x" * 1000, b"x-some: header\r\n" * 60):
            with socket.create_connection(("127.0.0.1", served.port), processes.LIMIT_S) as sender:
                sender.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: ")
                with pytest.raises(OSError, match=r"reset|roken pipe"):
                    sender.sendall(chunk * 10_000)
        long = {"users": [{"history": list(range(10**18, 10**18 + 10_000))}] * 4}
        assert served.ask("POST", "/v1/recommend", long)[0] == 200


def test_requests_that_do_not_end_are_ended(runs: Path) -> None:
    """One in its head, one in its body, and one whose sender goes away."""
    ask = (
        b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{"
    )
    with processes.serve(runs / "popularity", "--deadline-s", 0.2) as served:
        senders = [
            socket.create_connection(("127.0.0.1", served.port), processes.LIMIT_S)
            for _ in range(3)
        ]
        for sender, sent in zip(senders, (ask[:20], ask, ask), strict=True):
            sender.sendall(sent)
        senders[2].close()
        heads = [b"".join(iter(lambda one=one: one.recv(1000), b""))[:12] for one in senders[:2]]
        assert heads == [b"", b"HTTP/1.1 504"]
        for sender in senders[:2]:
            sender.close()
        _, lines = served.ended(signal.SIGTERM)
    asked = [line for line in lines if line["event"] == "request"]
    assert sorted(line["status"] for line in asked) == [400, 504]
    assert not any("error" in line for line in asked)


def test_what_comes_after_sigterm_is_refused_while_workers_drain(runs: Path) -> None:
    body = json.dumps(BODY).encode()
    with processes.serve(runs / "vae", "--workers", 2, "--deadline-s", 15) as served:
        with socket.create_connection(("127.0.0.1", served.port), processes.LIMIT_S) as sender:
            sender.sendall(
                b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            )
            served.ask("GET", "/readyz")
            served.process.send_signal(signal.SIGTERM)

            def is_refused() -> bool:
                try:
                    served.ask("GET", "/readyz")
                except ConnectionRefusedError:
                    return True
                except OSError:  # it was accepted before
                    pass
                return False

            processes.wait_for(is_refused)
            assert served.process.poll() is None
            sender.sendall(body)
            assert sender.recv(12) == b"HTTP/1.1 200"
        assert served.process.wait(processes.LIMIT_S) == 0


def test_sigterm_lets_requests_under_way_end(runs: Path) -> None:
    with processes.serve(runs / "gmf", "--max-users", 2000) as served:
        many = {"users": [{"history": [n % 12, n % 7]} for n in range(2000)], "k": 5}
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(served.ask, "POST", "/v1/recommend", many) for _ in range(4)]
            processes.wait_for(lambda: "batch_requests_count 0.0" not in served.text("/metrics"))
            status, _ = served.ended(signal.SIGTERM)
            found = [one.result() for one in asked]
    assert status == 0
    assert [(one[0], len(one[1]["answers"])) for one in found] == [(200, 2000)] * 4


def num_recommended(served: processes.Served) -> float:
    """Requests for recommendations, of all workers."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(served.text("/metrics"))
        for sample in family.samples
        if sample.name == "foretaste_requests_total" and sample.labels["route"] == "/v1/recommend"
    )


def test_workers_answer_from_one_socket_and_reload_together(place: Path, dataset: Dataset) -> None:
    with processes.serve(place, "--workers", 2) as served:
        first = processes.children(served.process.pid)
        assert len(first) == 2
        before = served.ask("POST", "/v1/recommend", BODY)[1]
        change(place, dataset)
        status, models = served.ask("POST", "/v1/reload", {})
        assert status == 200
        after = models["models"][0]["digest"]
        assert after != before["digest"]
        processes.wait_for(lambda: sum(line["event"] == "reload" for line in served.log()) == 3)
        digests = [served.ask("POST", "/v1/recommend", BODY)[1]["digest"] for _ in range(20)]
        assert set(digests) == {after}
        # A request is counted once it was answered.
        processes.wait_for(lambda: num_recommended(served) == 1 + 20)
        os.kill(min(first), signal.SIGKILL)
        ended = processes.wait_for(
            lambda: [line for line in served.log() if line["event"] == "worker_ended"]
        )
        assert (ended[0]["process"], ended[0]["status"]) == (min(first), -signal.SIGKILL)
        second = processes.wait_for(
            lambda: len(found := processes.children(served.process.pid)) == 2 and found
        )
        assert len(first & second) == 1
        # One that loads its runs accepts nothing: the other one answers.
        statuses = set()

        def has_loaded() -> bool:
            statuses.update(served.ask("GET", "/readyz")[0] for _ in range(10))
            return sum(line["event"] == "load" for line in served.log()) == 3

        processes.wait_for(has_loaded)
        assert statuses == {200}
        status, _ = served.ended(signal.SIGTERM)
    assert status == 0
    assert not any(map(processes.is_running, second))


def test_workers_end_with_their_supervisor(runs: Path) -> None:
    with processes.serve(runs / "popularity", "--workers", 2) as served:
        workers = processes.children(served.process.pid)
        assert len(workers) == 2
        served.process.kill()
        processes.wait_for(lambda: not any(map(processes.is_running, workers)))


def test_workers_that_cannot_load_their_run_end_the_service(place: Path) -> None:
    (place / "best.safetensors").unlink()
    with (
        pytest.raises(AssertionError, match=r"error: .*has no best\.safetensors"),
        processes.serve(place, "--workers", 2),
    ):
        pass


def test_mistakes_are_refused_before_anything_is_loaded(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no run is given"):
        serve([])
    with pytest.raises(RunError, match="is not a run"):
        serve([tmp_path / "none"])
    shutil.copytree(runs / "ease", tmp_path / "ease")
    with pytest.raises(SettingError, match="two runs are called ease"):
        serve([runs / "ease", tmp_path / "ease"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=rf"port {port} cannot be listened on: Address alr"):
            serve([runs / "ease"], ServeConfig(port=port))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "shop.example", ""])
def test_an_address_that_others_can_reach_needs_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="can be reached from other machines"):
        ServeConfig(host=host)
    (tmp_path / "token").write_text("s3cret-of-sixteen\n")
    assert ServeConfig(host=host, token_file=tmp_path / "token").token() == b"s3cret-of-sixteen"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_needs_none(host: str) -> None:
    assert ServeConfig(host=host).token() is None


@pytest.mark.parametrize("name", ["", "https://a.b", "a.b:80", "*.a.b", "a.b/", "a b"])
def test_an_allowed_host_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"allowed_hosts has .* give names alone"):
        ServeConfig(allowed_hosts=("a.b", name))


@pytest.mark.parametrize("content", [b"", b"short\n", b"two words of a token", b"\xff" * 20])
def test_a_token_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    config = ServeConfig(token_file=tmp_path / "token")
    with pytest.raises(SettingError, match="token_file"):
        config.token()


def test_without_the_extra_it_says_what_to_install(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uvicorn", "foretaste.serve.process"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "foretaste.serve.process")
    with pytest.raises(MissingExtraError, match=r"pip install .* starlette uvicorn uvloop$"):
        serve([runs / "ease"])


def test_the_command_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    given: list[object] = []

    def record(run: object, config: object, announce: object) -> None:
        given.extend((run, config))
        announce("http://127.0.0.1:1")  # type: ignore[operator]

    monkeypatch.setattr("foretaste.serve.server.serve", record)
    done = call("serve", runs / "ease", runs / "vae", "--max-k", 7, "--no-access-log")
    assert done.status == 0, done.err
    assert given == [(runs / "ease", runs / "vae"), ServeConfig(max_k=7, access_log=False)]
    assert "at http://127.0.0.1:1; Ctrl-C ends it" in done.text
