"""Commands on streams that are closed, full or gone, and text that would command a terminal."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pyarrow as pa
import pytest

import foretaste as package
from foretaste.cli.console import counting, steps
from foretaste.recommend import Recommender
from foretaste.recommend.export import without_formulas
from tests.cli.conftest import call
from tests.messages import says

ANSWER = "recommend runs/popularity --user 1 -k 2"
HOSTILE = "=1+1\x1b[31m\u202e\x9b"
SHOWN = r"=1+1\u001b[31m\u202e\u009b"


def shell(line: str, cwd: Path, redirection: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(sys.executable)} -m foretaste {line} {redirection}"
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, cwd=cwd, env=environment
    )


def test_a_closed_stdout_is_an_error_at_once(model_shop: Path) -> None:
    done = shell(ANSWER, model_shop, ">&-")
    says(done.stderr, "stdout", ">/dev/null")
    assert done.returncode == 2


def test_a_closed_stderr_takes_nothing_away(model_shop: Path) -> None:
    done = shell(ANSWER, model_shop, "2>&-")
    with chdir(model_shop):
        assert (done.returncode, done.stdout) == (0, call(*ANSWER.split()).out)
    assert done.stdout


@pytest.mark.parametrize("redirection", ["2>&-", ">/dev/full 2>&1"])
def test_a_mistake_that_cannot_be_printed_is_one_still(redirection: str, model_shop: Path) -> None:
    done = shell("recommend nowhere --user 1", model_shop, redirection)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_full_stdout_is_an_error(model_shop: Path) -> None:
    done = shell("--help", model_shop, ">/dev/full")
    says(done.stderr, "No space left on device")
    assert done.returncode == 2


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run whose ids and titles would command a terminal or a spreadsheet."""
    root = tmp_path_factory.mktemp("hostile")
    rows = [("u", f"{item}{HOSTILE}") for item in "abc"] + [(HOSTILE, f"a{HOSTILE}")]
    rows += [(f"{HOSTILE}{number}", HOSTILE) for number in range(5)]
    with (root / "ratings.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("user_id", "item_id"), *rows])
    titles = [(item, f"\t{HOSTILE}") for item in {item for _, item in rows}]
    with (root / "items.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("item_id", "title"), *titles])
    with chdir(root):
        line = "train popularity ratings.csv --items items.csv --protocol none --run run"
        done = call(*line.split())
    assert done.status == 0, done.err
    return root


def test_tables_show_escapes(hostile: Path) -> None:
    done = call("recommend", hostile / "run", "--user", HOSTILE, "u")
    lines = done.out.splitlines()
    assert lines[0] == f"user {SHOWN}"
    assert lines[1].endswith(f"  {SHOWN}")
    assert not set(done.out) & set("\x1b\u202e\x9b")


def test_names_of_runs_and_datasets_show_escapes(hostile: Path, tmp_path: Path) -> None:
    dataset, run = tmp_path / HOSTILE, tmp_path / f"run {HOSTILE}"
    line = ["prepare", hostile / "ratings.csv", "--protocol", "none", "--output", dataset]
    assert call(*line).status == 0
    assert call("train", "popularity", dataset, "--run", run).status == 0
    done = call("runs", tmp_path)
    assert f" run {SHOWN}   popularity   {SHOWN} " in done.out
    assert not set(done.out) & set("\x1b\u202e\x9b")


def test_messages_show_escapes() -> None:
    for line in (["recommend", HOSTILE, "--user", "1"], [HOSTILE], ["verify", HOSTILE]):
        done = call(*line)
        assert SHOWN in done.err
        assert not set(done.err) & set("\x1b\u202e\x9b")
        assert done.status == 2


def test_programs_get_unchanged_ids(hostile: Path) -> None:
    line = ["recommend", hostile / "run", "--user", "u", "-k", "1", "--format"]
    (row,) = csv.DictReader(call(*line, "csv").out.splitlines())
    (answer,) = json.loads(call(*line, "json").out)
    assert row["item_id"] == answer["items"][0]["item_id"] == HOSTILE
    assert row["title"] == answer["items"][0]["title"] == f"\t{HOSTILE}"


def test_text_that_a_spreadsheet_would_compute(hostile: Path, tmp_path: Path) -> None:
    run, file = hostile / "run", tmp_path / "all.csv"
    line = ["recommend", run, "--user", "u", HOSTILE, "-k", "1", "--spreadsheet-safe"]
    printed = list(csv.DictReader(call(*line, "--format", "csv").out.splitlines()))
    assert call(*line, "--output", file).status == 0
    with file.open(newline="", encoding="utf-8") as lines:
        written = list(csv.DictReader(lines))
    assert printed == written
    assert {row["user_id"] for row in printed} == {f"'{HOSTILE}", "u"}
    assert {row["title"] for row in printed} == {f"'\t{HOSTILE}"}
    assert printed[-1]["item_id"] == f"'{HOSTILE}"


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_every_sign_that_begins_a_formula(sign: str) -> None:
    table = pa.table({"id": [f"{sign}x", f"x{sign}", "", None], "score": [-1.0, 2.0, 3.0, 4.0]})
    safe = without_formulas(table).to_pydict()
    assert safe == {"id": [f"'{sign}x", f"x{sign}", "", None], "score": [-1.0, 2.0, 3.0, 4.0]}


def test_numbers_below_zero_stay_numbers(model_shop: Path, tmp_path: Path) -> None:
    recommender = Recommender.open(model_shop / "runs" / "vae", "cpu")
    for name, safe in (("a.csv", False), ("b.csv", True)):
        recommender.recommend_all(tmp_path / name, k=50, spreadsheet_safe=safe)
    text = (tmp_path / "b.csv").read_text()
    assert ",-" in text
    assert text == (tmp_path / "a.csv").read_text()


def test_without_a_terminal_long_work_has_a_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    with (
        counting("Ranking test") as progress,
        steps("Preparing") as step,
        counting("Quiet", quiet=True) as quiet,
    ):
        now += 5.0  # of other work, which does not tell the time left
        for done in range(5):
            progress(done, 8)
            step(f"part {done}")
            quiet(done, 8)
            now += 20.0
    assert capsys.readouterr().err.splitlines() == [
        "Ranking test: 25%, 0:02:00 left",
        "Preparing: part 2",
        "Ranking test: 50%, 0:01:20 left",
        "Preparing: part 4",
    ]
