"""Time to quality: whole commands of two checkouts, run alternately."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import leaderboard, show
from foretaste.bench.rows import Row
from foretaste.data import GenerateConfig, PrepareConfig, generate, prepare

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = GenerateConfig(num_users=150, num_items=40, num_interactions=2000, num_genres=4)
    folder = tmp_path_factory.mktemp("data")
    prepare(generate(shape).table, folder / "tiny", PrepareConfig(protocol="held-out-users"))
    return folder


@pytest.fixture(autouse=True)
def _copies_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaderboard, "COPIED_BYTES", 1 << 20)


def test_both_checkouts_train_and_are_compared(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both checkouts are the same one, so it trains once."""
    train, done = leaderboard.train, tmp_path / "done"
    numbers: dict[str, Any] = {}
    commands: list[list[str]] = []

    def once(checkout: Path, asked: list[str], run: Path, threads: int) -> dict[str, Any]:
        assert checkout == ROOT
        commands.append(asked)
        if not numbers:
            numbers.update(train(checkout, asked, done, threads))
        shutil.copytree(done, run)
        return dict(numbers)

    monkeypatch.setattr(leaderboard, "train", once)
    output = tmp_path / "rows.jsonl"
    options = f"--data {data} --datasets tiny --models vae --threads 1 --output {output}"
    beside = ["--beside", str(ROOT), "--beside-options", "--ema 0.9"]
    leaderboard.main([*options.split(), *beside])
    common = ["vae", str(data / "tiny")]
    assert commands == [[*common, "--ema", "0.9", "--seed", "1"], [*common, "--seed", "1"]]
    parent, ours = map(json.loads, output.read_text().splitlines())
    assert [parent["side"], ours["side"]] == ["beside", "foretaste"]
    case = {"dataset": "tiny", "seed": 1, "threads": 1, "beside_options": "--ema 0.9"}
    assert parent["case"] == ours["case"] == case
    for row in (parent, ours):
        measured = row["measured"]
        assert 0 < measured["to_98_s"] < measured["elapsed_s"]
        assert measured["cpu_s"] > 0
        assert measured["metric"] == "ndcg@100"
        assert row["hardware"]["copy_gb_per_s"] > 0
        assert row["commit"]
    assert ours["measured"]["difference"] == [0.0, 0.0, 0.0]
    assert ours["measured"]["quality"] == parent["measured"]["quality"]
    assert capsys.readouterr().out.endswith("\nMoved: nothing\n")
    show.main([str(output)])
    shown = capsys.readouterr().out
    assert "+0.0000 (+0.0000 to +0.0000), beside / ours: elapsed 1.00, CPU 1.00" in shown


def test_a_model_without_epochs_is_there_at_its_end(data: Path, tmp_path: Path) -> None:
    measured = leaderboard.train(ROOT, ["ease", str(data / "tiny")], tmp_path / "run", 1)
    assert measured["to_98_s"] == measured["elapsed_s"]
    assert measured["metric"] == "ndcg@100"
    value, low, high = measured["metrics"]["ndcg@100"]
    assert low < value == measured["quality"] < high
    assert measured["peak_memory_mib"] > 100


def test_differences_between_checkouts_are_named() -> None:
    def row(model: str, seed: int, difference: list[float], times: float) -> Row:
        numbers = {"metric": "ndcg@10", "difference": difference, "times_cpu_s": times}
        case = {"dataset": "tiny", "seed": seed}
        return Row(
            benchmark="", model=model, side="foretaste", case=case, clock="", measured=numbers
        )

    same = [0.001, -0.001, 0.003]
    rows = [row("ease", 1, same, 1.2), row("ease", 2, same, 1.13)]
    rows += [row("vae", 1, same, 1.2), row("vae", 2, [-0.01, -0.015, -0.005], 0.8)]
    assert leaderboard.moved(rows) == [
        "vae on tiny, seed 2: ndcg@10 -0.0100 (-0.0150 to -0.0050)",
        "ease on tiny: beside took 1.13 to 1.20 times our CPU time",
    ]


def test_a_command_that_fails_is_one_error(
    data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(SystemExit, match="2"):
        leaderboard.main(f"--data {data} --datasets none --models vae".split())
    assert "failed; what it said is above" in capfd.readouterr().err
