"""metrics.jsonl: append-only JSON lines that declare themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretaste.errors import RunError
from foretaste.runs import MetricsLog, Run
from foretaste.runs.metrics_log import UNITS, first_line, line_after, previous_of


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
    assert [event["event"] for event in run.log.read()] == ["schema", "weights", "epoch"]

    run.log.append("epoch", epoch=2)
    assert [event.get("epoch") for event in run.log.read()] == [None, None, 1, 2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "is not JSON"),
        (b"[1, 2]", "is not a JSON object"),
        (b"\0\0\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"event": "epoch"}', 'is torn or was changed: its text does not match its "sha256"'),
        (b" " * (16 << 20), "is longer than 16 MiB"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(first_line().encode() + line + b"\n")
    with pytest.raises(RunError, match=rf"metrics\.jsonl, line 2 {said}"):
        MetricsLog(path).read()
    assert [event["event"] for event in MetricsLog(path).read_sound()] == ["schema"]


def three_lines() -> list[str]:
    lines = [first_line()]
    for epoch in (1, 2):
        lines.append(line_after(previous_of(lines[-1]), "epoch", epoch=epoch))
    return lines


@pytest.mark.parametrize("kept", [(0, 2), (0, 2, 1), (0, 1, 1, 2), (1, 2)])
def test_lines_that_were_taken_out_or_moved_are_noticed(
    tmp_path: Path, kept: tuple[int, ...]
) -> None:
    path, lines = tmp_path / "metrics.jsonl", three_lines()
    path.write_text("".join(lines[number] for number in kept))
    with pytest.raises(RunError, match="does not follow the line before it"):
        MetricsLog(path).read()


def test_every_bit_that_was_flipped_is_noticed(tmp_path: Path) -> None:
    path, lines = tmp_path / "metrics.jsonl", three_lines()
    sound = "".join(lines).encode()
    begin = len(lines[0]) - 80
    for bit in range(8 * begin, 8 * len(sound)):
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(RunError, match=r"metrics\.jsonl, line [123] "):
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


def test_the_last_events_are_those_of_the_whole_log(run: Run) -> None:
    for epoch in range(1, 6):
        run.log.append("epoch", epoch=epoch)
    assert run.log.last_events(2) == run.log.read()[-2:]
    assert run.log.last_events(100) == run.log.read()[1:]
    with run.log.path.open("a") as file:
        file.write('{"event": "epo')
    assert [event["epoch"] for event in run.log.last_events(2)] == [4, 5]


@pytest.mark.parametrize("text", ["", "\n", "not JSON\nnor this\n", "{}\n{}\n"])
def test_what_is_no_log_has_no_last_events(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    if text.count("\n") < 2:
        assert log.last_events(2) == []
        return
    with pytest.raises(RunError, match="one of its last lines"):
        log.last_events(2)


def test_a_line_that_no_reader_takes_is_not_written(run: Run) -> None:
    before = run.log.path.read_bytes()
    with pytest.raises(RunError, match=r"'epoch' is too long for a log: it has 16,777,\d{3} bytes"):
        run.log.append("epoch", metrics={"ndcg@10": "0" * (16 << 20)})
    assert run.log.path.read_bytes() == before


def test_a_long_line_is_written_and_read(run: Run) -> None:
    run.log.append("epoch", metrics={"ndcg@10": "0" * (15 << 20)})
    run.log.append("epoch", epoch=2)
    assert [event["event"] for event in run.log.read()][-2:] == ["epoch", "epoch"]
    assert run.log.last_events(2) == run.log.read()[-2:]
