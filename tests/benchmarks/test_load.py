"""The service under load: rows that count every request, and answers that are compared."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks import load
from foretaste.recommend import load as load_run
from tests import programs
from tests.runs.tiny import make_dataset, make_run

needs_tools = pytest.mark.skipif(
    (os.cpu_count() or 1) < 2
    or (programs.MAY_BE_MISSING and not (shutil.which("gcc") and shutil.which("taskset"))),
    reason="needs gcc, taskset and two cores",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of one shop with other weights."""
    folder = tmp_path_factory.mktemp("runs")
    dataset = make_dataset(folder)
    make_run(folder / "ease", dataset, "ease")
    make_run(folder / "other", dataset, "ease", l2=5.0)
    return folder / "ease", folder / "other"


@pytest.fixture(scope="module")
def service(
    runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[load.Service]:
    options = ["--queue-requests", "99"]
    with load.Service(runs[0], options, str(tmp_path_factory.mktemp("service"))) as service:
        yield service


@pytest.fixture
def started(service: load.Service, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The run and options of each service asked for; `service` answers for all."""
    started = []

    def start(run: Path, options: Sequence[str], folder: str) -> AbstractContextManager[Any]:
        started.append((run, *options))
        return nullcontext(service)

    monkeypatch.setattr(load, "Service", start)
    return started


def rows_of(line: str, runs: tuple[Path, Path], output: Path) -> list[dict[str, Any]]:
    verb, _, options = line.partition(" ")
    load.main([verb, str(runs[0]), "--output", str(output), *options.split()])
    return [json.loads(line) for line in output.read_text().splitlines()]


@needs_tools
def test_every_request_is_counted_and_a_valid_row_is_not_measured_again(
    runs: tuple[Path, Path],
    tmp_path: Path,
    started: list[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "steady --rate 100 --seconds 0.5 --warm-up-s 0.1 -- --queue-requests 99"
    monkeypatch.setattr(load, "MAX_LAG_MS", 1e9)
    (row,) = rows_of(line, runs, tmp_path / "rows")
    assert rows_of(line, runs, tmp_path / "rows") == [row]
    assert started == [(runs[0], "--queue-requests", "99")]
    measured = row["measured"]
    assert not measured["is_void"]
    assert row["case"]["serve"] == "--queue-requests 99"
    assert measured["requests"] == measured["answered"] > 20
    assert [measured[name] for name in ("wrong", "refused", "late", "lost")] == [0] * 4
    assert 0 < measured["latency_ms"]["p50"] <= measured["latency_ms"]["p99"]


@needs_tools
def test_a_ramp_counts_refusals_by_step_and_repeats_a_void_row(
    runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "ramp --rate 20 --top 3000 --seconds 0.1 --connections 200 --tries 1"
    line += " -- --queue-requests 1"
    monkeypatch.setattr(load, "MAX_LAG_MS", -1.0)
    (row,) = rows_of(line, runs, tmp_path / "rows")
    measured = row["measured"]
    assert measured["is_void"]
    steps = measured["steps"]
    assert [steps[0]["rate"], steps[4]["rate"], steps[8]["rate"]] == [20, 3000, 20]
    assert measured["refused"] == sum(step["refused"] for step in steps) > 0
    assert measured["answered"] + measured["refused"] == measured["requests"]
    assert measured["wrong"] == 0
    monkeypatch.setitem(load.MEASURES, "ramp", lambda *_: {"is_void": False})
    monkeypatch.setattr(load, "Service", lambda *_: nullcontext())
    assert rows_of(line, runs, tmp_path / "rows")[0] == row
    assert len(rows_of(line, runs, tmp_path / "rows")) == 2


@needs_tools
def test_answers_are_right_while_runs_are_swapped(
    runs: tuple[Path, Path],
    tmp_path: Path,
    started: list[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "RELOADS_OF_A_ROW", 2)
    monkeypatch.setattr(load, "SECONDS_OF_A_LOAD", 0.5)
    line = f"reload --other {runs[1]} --rate 50 --reloads 2"
    (row,) = rows_of(line, runs, tmp_path / "rows")
    assert started == [(runs[0],)]
    measured = row["measured"]
    assert (measured["reloads"], measured["reloads_failed"]) == (2, 0)
    assert measured["requests"] == measured["answered"] > 0
    assert measured["wrong"] == 0


def test_a_list_counts_as_right_for_its_own_run_and_user_alone(runs: tuple[Path, Path]) -> None:
    lists = load.Lists("new", 5, seed=0)
    for run in runs:
        lists.add(run)
    digests = list(lists._lists)
    recommender = load_run(runs[1], "cpu")

    def body(number: int, **changed: Any) -> bytes:
        answer = recommender.recommend_for([lists.asked[number]["history"]])[0]
        items = [{"item_id": one.item_id, "score": one.score} for one in answer.items]
        listed = {"user_id": None, "items": items} | changed
        return json.dumps({"digest": digests[1], "answers": [listed]}).encode()

    assert lists.is_right(0, body(0))
    assert not lists.is_right(0, body(0).replace(digests[1].encode(), digests[0].encode()))
    assert not lists.is_right(0, body(0).replace(digests[1].encode(), b"0123456789abcdef"))
    assert not lists.is_right(1, body(0))
    assert not lists.is_right(0, body(0, user_id=7))
    assert not lists.is_right(0, body(0, items=json.loads(body(0))["answers"][0]["items"][1:]))
