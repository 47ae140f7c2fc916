"""``foretaste bench``, ``python -m foretaste.bench``, and the script for GPU machines."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import foretaste
from foretaste.bench.__main__ import _parser, main
from tests.cli.conftest import call

ROOT = Path(__file__).parents[2]
TINY = "--shape 60x50x600 --device cpu --repeats 2"
NEUMF = "--factors 4 --layers 8 8 4"

BENCHMARKS = ["train", "inference", "recommend", "scaling"]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("model", ["neumf", "vae"])
def test_every_benchmark_explains_itself(benchmark: str, model: str) -> None:
    done = call("bench", benchmark, model, "--help")
    assert done.status == 0
    assert f"Usage: foretaste bench {benchmark} {model} [OPTIONS]" in done.text
    assert "--shape" in done.text
    assert ("--factors" in done.text) == (model == "neumf")


def test_bench_train_prints_its_table_last(tmp_path: Path) -> None:
    line = f"bench train neumf {TINY} {NEUMF} --batch-size 100 50 --precision fp32 bf16 --steps 1"
    done = call(*line.split(), "--against", "plain", "--output", tmp_path / "rows.jsonl")
    assert done.status == 0, done.err
    lines = done.out.strip().splitlines()
    assert lines[0] == "**train neumf**"
    assert lines[2].startswith("| side | precision | batch | chunk | samples/s | × plain |")
    assert len(lines) == 4 + 8
    assert "training in bf16, 50 samples a batch" in done.err
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 8


def test_paper_sizes_are_an_option() -> None:
    done = call(*f"bench train neumf {TINY} --paper-sizes --factors 9".split())
    assert done.status == 2
    assert "paper_sizes was given together with factors 9" in done.err


def test_bench_recommend_takes_the_models_options() -> None:
    line = f"bench recommend vae {TINY} --hidden 8 --latent 4 --k 5 --calls 2 --batch-sizes 1 4"
    done = call(*line.split())
    assert done.status == 0, done.err
    assert "**recommend vae**" in done.out
    quiet = call(*line.split(), "--quiet")
    assert quiet.status == 0
    assert (bool(done.err), quiet.err) == (True, "")
    assert "**recommend vae**" in quiet.out


@pytest.mark.parametrize("line", ["train neumf --shape nowhere", "train vae --steps 0"])
def test_mistakes_exit_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("bench", *line.split()).status == 2
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert capsys.readouterr().err.startswith("error: ")


def test_both_command_lines_know_the_same_options() -> None:
    shown = set(call("bench", "train", "neumf", "--help").text.split())
    commands = _parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr,index,call-overload]
    train = commands["train"]._subparsers._group_actions[0].choices["neumf"]
    options = {action.option_strings[0] for action in train._actions} - {"-h"}
    assert options
    assert options <= shown


def test_the_module_runs_and_shows_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    line = f"inference neumf {TINY} {NEUMF} --calls 2 --batch-sizes 8 --against plain"
    main([*line.split(), "--output", str(rows)])
    assert "**inference neumf**" in capsys.readouterr().out
    main(["show", str(rows)])
    table = capsys.readouterr().out.strip().splitlines()
    assert table[0] == "**summary**"
    assert len(table) == 4 + 3


def test_show_refuses_what_it_did_not_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"some": "json"}\n')
    with pytest.raises(SystemExit, match="2"):
        main(["show", str(path)])
    assert f"error: {path} does not hold rows of a benchmark" in capsys.readouterr().err


def test_the_module_needs_no_command_line_library_and_no_duckdb() -> None:
    code = """
import sys
for name in ("duckdb", "cyclopts", "rich"):
    sys.modules[name] = None
from foretaste.bench.__main__ import main
tiny = "--shape 60x50x600 --device cpu --repeats 1".split()
main(["train", "neumf", *tiny, "--factors", "4", "--layers", "8", "4", "--target", "0.01"])
main(["recommend", "vae", *tiny, "--hidden", "8", "--latent", "4", "--calls", "1"])
"""
    environment = os.environ | {"PYTHONPATH": str(Path(foretaste.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "**train-target neumf**" in done.stdout


@pytest.mark.parametrize("tiny", ["1", ""])
def test_the_gpu_script_asks_for_benchmarks_that_exist(tiny: str, tmp_path: Path) -> None:
    """The interpreter is replaced by one that only notes how it was called."""
    noted = tmp_path / "calls"
    recorder = tmp_path / "python"
    recorder.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(noted))}\n')
    recorder.chmod(0o755)
    environment = os.environ | {"PYTHON": str(recorder), "OUT": str(tmp_path / "out"), "TINY": tiny}
    subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu.sh")], env=environment, capture_output=True
    )
    lines = noted.read_text().splitlines()
    assert any("pytest" in line for line in lines)
    prefix = "-m foretaste.bench "
    asked = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    assert len(asked) == 12
    for line in asked:
        _parser().parse_args(line.split())


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("plain_neumf.py", "--factors 4 --layers 8 8 4 --batch-size 100"),
        ("plain_vae.py", "--hidden 8 --latent 4 --batch-size 20"),
    ],
)
def test_the_plain_loops_run_by_themselves(
    script: str,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = f"{script} --shape 60x50x600 {options} --epochs 1 --steps 1 --device cpu"
    monkeypatch.setattr(sys, "argv", line.split())
    runpy.run_path(str(ROOT / "benchmarks" / script), run_name="__main__")
    assert "/s, batches of " in capsys.readouterr().out


def test_rows_are_json(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    main(f"scaling vae {TINY} --items 50 --widths 8 --latent 4 --output {rows}".split())
    (document,) = [json.loads(line) for line in rows.read_text().splitlines()]
    assert document["benchmark"] == "scaling"
    assert document["options"]["items"] == [50]
    assert "output" not in document["options"]
