"""metrics.jsonl: append-only JSON lines that declare themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretaste.errors import RunError
from foretaste.runs import MetricsLog, Run
from foretaste.runs.log import UNITS, first_line


def test_the_first_line_declares_names_and_units(run: Run) -> None:
    schema = run.log.read()[0]
    assert schema["event"] == "schema"
    assert schema["units"] == UNITS
    assert schema["units"]["elapsed_s"] == "seconds"


def test_events_come_back_in_order(run: Run) -> None:
    run.log.append("epoch", epoch=1, loss=0.5)
    MetricsLog(run.log.path).append("evaluate", epoch=1, metrics={"ndcg@10": {"value": 0.25}})

    *_, epoch, evaluate = run.log.read()

    assert epoch.pop("time") <= evaluate.pop("time")
    assert epoch == {"event": "epoch", "epoch": 1, "loss": 0.5}
    assert evaluate == {"event": "evaluate", "epoch": 1, "metrics": {"ndcg@10": {"value": 0.25}}}


def test_numbers_that_are_not_finite_become_null(run: Run) -> None:
    values = (float("nan"), float("inf"), -float("inf"), 1.0)
    run.log.append("epoch", loss=values[0], metrics={"low": values})

    for line in run.log.path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    event = run.log.read()[-1]
    assert event["loss"] is None
    assert event["metrics"] == {"low": [None, None, None, 1.0]}


def test_an_undeclared_name_is_our_own_mistake(run: Run) -> None:
    with pytest.raises(AssertionError, match="speed"):
        run.log.append("epoch", speed=1)


def test_a_torn_last_line_is_left_out_and_then_dropped(run: Run) -> None:
    run.log.append("epoch", epoch=1)
    with run.log.path.open("a") as file:
        file.write('{"event": "epo')
    assert [event["event"] for event in run.log.read()] == ["schema", "epoch"]

    run.log.append("epoch", epoch=2)
    assert [event.get("epoch") for event in run.log.read()] == [None, 1, 2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "Expecting value"),
        (b"[1, 2]", "it is no event"),
        (b'{"epoch": 1}', "it is no event"),
        (b"\0\0\xff", "'utf-8' codec can't decode"),
        (b"[" * 100_000, "maximum recursion depth"),
        (first_line().encode().strip(), "the first line, and no other, declares names and units"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(first_line().encode() + line + b"\n")
    with pytest.raises(RunError, match=rf"metrics\.jsonl, line 2 is damaged: {said}"):
        MetricsLog(path).read()


@pytest.mark.parametrize("content", ["", '{"event": "sch', '{"event": "epoch"}\n'])
def test_a_log_without_its_first_line_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(content)
    with pytest.raises(RunError, match=r"line 1 is damaged: .*declare"):
        MetricsLog(path).read()


def test_a_log_that_is_a_link_is_read_and_not_written(run: Run, tmp_path: Path) -> None:
    """As caches keep files; going on, a training has a log of its own."""
    cached = run.log.path.rename(tmp_path / "cached")
    run.log.path.symlink_to(cached)
    before, lines = cached.read_bytes(), run.log.lines()
    with pytest.raises(RunError, match=r"cannot be written: .*it is a link"):
        run.log.append("epoch", epoch=1)
    run.log.cut(lines)
    run.log.append("epoch", epoch=1)
    assert cached.read_bytes() == before
    assert run.log.path.read_bytes() != before
