"""metrics.jsonl: append-only JSON lines that declare themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretaste.data import Dataset
from foretaste.errors import RunError
from foretaste.runs import MetricsLog, Run, list_runs, verify
from foretaste.runs.log import UNITS, first_line
from tests.messages import raises, says
from tests.runs.tiny import make_run


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
    ("line", "named"),
    [
        (b"not json", [re.compile("Expecting value: .*")]),
        (b"[1, 2]", ["[1, 2]"]),
        (b'{"epoch": 1}', ['{"epoch": 1}']),
        (b"\0\0\xff", [re.compile("'utf-8' codec can't decode .*")]),
        (b"[" * 100_000, [re.compile("maximum recursion depth .*")]),
        (first_line().encode().strip(), []),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, named: list[object]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(first_line().encode() + line + b"\n")
    with raises(RunError, "metrics.jsonl", 2, *named):
        MetricsLog(path).read()


@pytest.mark.parametrize("content", ["", '{"event": "sch', '{"event": "epoch"}\n'])
def test_a_log_without_its_first_line_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(content)
    with raises(RunError, "metrics.jsonl", 1):
        MetricsLog(path).read()


def test_a_log_that_is_a_link_is_read_and_not_written(run: Run, tmp_path: Path) -> None:
    """Caches keep files as links; a resumed training writes a log of its own."""
    cached = run.log.path.rename(tmp_path / "cached")
    run.log.path.symlink_to(cached)
    before, lines = cached.read_bytes(), run.log.lines()
    with raises(RunError, run.log.path, run.log.path):
        run.log.append("epoch", epoch=1)
    run.log.cut(lines)
    run.log.append("epoch", epoch=1)
    assert cached.read_bytes() == before
    assert run.log.path.read_bytes() != before


def changes(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Changed copies of a log, by the kind of change."""
    for number, line in enumerate(lines):
        yield f"line {number} lost", lines[:number] + lines[number + 1 :]
        yield f"line {number} twice", lines[: number + 1] + lines[number:]
        for old, new in (("0.5", "0.9"), ("2", "3"), ("event", "evenu"), (" ", "  ")):
            if old in line:
                changed = line.replace(old, new, 1)
                yield (
                    f"line {number} with {new!r}",
                    [*lines[:number], changed, *lines[number + 1 :]],
                )
    yield "two lines in the other order", [lines[0], lines[2], lines[1], *lines[3:]]


def test_every_change_of_a_finished_log_is_noticed(run: Run) -> None:
    for epoch in (1, 2):
        run.log.append("epoch", epoch=epoch, loss=0.5)
    run.log.finish(train_s=2.5)
    lines, num = run.log.lines(), 0
    assert verify(run.path) == []
    assert run.is_finished
    for what, changed in changes(lines):
        run.log.path.write_text("".join(changed))
        assert verify(run.path), what
        num += 1
        if "summary" in changed[-1] or what == "line 3 twice":
            with pytest.raises(RunError, match=r"metrics\.jsonl"):
                _ = run.is_finished
    assert num >= 20


def test_the_log_of_another_run_is_noticed(run: Run, tmp_path: Path, dataset: Dataset) -> None:
    other = make_run(tmp_path / "other", dataset, "ease")
    for one in (run, other):
        one.log.finish(train_s=2.5)
    run.log.path.write_bytes(other.log.path.read_bytes())
    with raises(RunError, run.log.path, "config.json"):
        _ = run.log.summary
    says(verify(run.path)[0], run.log.path, "config.json")
    (listed,) = [one for one in list_runs(run.path.parent) if one.path == run.path]
    says(listed.state, run.log.path, "config.json")


def test_a_log_that_lost_its_end_is_named(run: Run) -> None:
    run.log.finish(train_s=2.5)
    run.log.cut(run.log.lines()[:-1])
    (problem,) = verify(run.path)
    says(problem, run.log.path, "resume.safetensors")
