"""The command lines of the measurements, and the scripts for GPU machines and of publications."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

import foretaste
from benchmarks import show
from benchmarks.command import parser, run
from foretaste.cli.app import app
from foretaste.data.config import PrepareConfig
from foretaste.evaluation.config import EvaluationConfig, canonical_metrics
from foretaste.runs import Run
from tests.cli.conftest import call
from tests.scripts import run_script

ROOT = Path(__file__).parents[2]
TINY = "--shape 60x50x600 --device cpu --repeats 2"
NEUMF = "--factors 4 --layers 8 8 4"


def measure(line: str) -> None:
    name, *tokens = line.split()
    module = import_module(f"benchmarks.{name}")
    run(module.NAME, module.OPTIONS, module.measure, tokens)


def test_a_measurement_runs_and_its_rows_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    measure(f"inference neumf {TINY} {NEUMF} --calls 2 --batch-sizes 8 --output {rows}")
    assert "**inference neumf**" in capsys.readouterr().out
    show.main([str(rows)])
    table = capsys.readouterr().out.strip().splitlines()
    assert table[0] == "**summary**"
    assert len(table) == 4 + 2


def test_stored_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "benchmarks" / "results"
    files = [str(folder / name) for name in ("cpu.jsonl", "scaling-neumf.jsonl")]
    show.main(files)
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 4 + sum(len(Path(file).read_text().splitlines()) for file in files)


def test_mistakes_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        measure("train vae --steps 0")
    assert capsys.readouterr().err.startswith("error: ")


def test_measuring_needs_no_command_line_library_and_no_duckdb() -> None:
    code = """
import sys
for name in ("duckdb", "cyclopts", "rich"):
    sys.modules[name] = None
from benchmarks import recommend, target
from benchmarks.command import run
tiny = "--shape 60x50x600 --device cpu --repeats 1".split()
for module, line in (
    (target, "neumf --factors 4 --layers 8 4 --target 0.01"),
    (recommend, "vae --hidden 8 --latent 4 --calls 1 --batch-sizes 1"),
):
    run(module.NAME, module.OPTIONS, module.measure, [*line.split(), *tiny])
"""
    source = Path(foretaste.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "**train-target neumf**" in done.stdout


def test_every_command_behind_the_results_can_be_read() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text()
    lines = re.findall(r"^python -m benchmarks\.(\w+) (.*?)(?:   .*)?$", page, re.MULTILINE)
    assert len(lines) >= 16
    for name, options in lines:
        module = import_module(f"benchmarks.{name}")
        if not hasattr(module, "OPTIONS"):
            continue
        parser(module.NAME, module.OPTIONS).parse_args(shlex.split(options))
    ours = re.findall(r"^foretaste (.*)$", page, re.MULTILINE)
    assert len(ours) >= 15
    for line in ours:
        app.parse_args(line.split(), exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    ("part", "tiny", "num_commands"), [("1", "1", 4), ("1", "", 6), ("2", "1", 15), ("2", "", 15)]
)
def test_the_gpu_script_asks_for_benchmarks_that_exist(
    part: str, tiny: str, num_commands: int, tmp_path: Path
) -> None:
    """The interpreter is replaced by one that only notes how it was called."""
    noted = tmp_path / "calls"
    recorder = tmp_path / "python"
    recorder.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(noted))}\n')
    recorder.chmod(0o755)
    out = tmp_path / "out"
    environment = os.environ | {"PYTHON": str(recorder), "OUT": str(out)}
    environment |= {"TINY": tiny, "PART": part}
    subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu.sh")], env=environment, capture_output=True
    )
    lines = noted.read_text().splitlines()
    assert any("pytest" in line for line in lines)
    prefix = re.compile(r"^-m (torch\.distributed\.run --nproc-per-node 2 -m -- )?benchmarks\.")
    commands = [prefix.sub("", line).split() for line in lines if prefix.match(line)]
    assert len(commands) == num_commands
    assert commands.pop() == ["show", str(out / f"gpu-{part}.jsonl")]
    order = (out / f"gpu-{part}.log").read_text()
    assert order.count(" s: ") == num_commands  # with the tests, without the table
    for name, *tokens in commands:
        module = import_module(f"benchmarks.{name}")
        parser(module.NAME, module.OPTIONS).parse_args(tokens)


NOTE = r"""printf '%s\t' "$@"; echo"""
"""A program that only prints how it was called."""


def papers_line(tmp_path: Path, *names: str) -> list[str]:
    words = [ROOT / "benchmarks" / "papers.sh", tmp_path / "the data", tmp_path / "the runs"]
    return ["bash", *map(str, words), *names]


def papers(tmp_path: Path, command: str, *names: str) -> subprocess.CompletedProcess[str]:
    """The script of publications, with a line of shell in place of the command."""
    program = tmp_path / "bin" / "foretaste"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    line = papers_line(tmp_path, *names)
    return subprocess.run(line, env=environment, capture_output=True, text=True)


def noted(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return [line.split("\t")[:-1] for line in done.stdout.splitlines() if "\t" in line]


def test_the_commands_of_the_publications_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every value is accepted, and every file that a command reads was made by an earlier
    command."""
    trained: list[str] = []
    # Called once the configs are made, which refuse wrong values.
    monkeypatch.setattr(
        "foretaste.training.api.train_run", lambda request, _: trained.append(request.model)
    )
    monkeypatch.setattr("foretaste.training.request.TrainRequest.check_names", lambda _: None)
    monkeypatch.setattr("foretaste.cli.train.print_run", lambda *_: None)
    made: set[str] = set()
    for line in noted(papers(tmp_path, NOTE)):
        app.parse_args(line, exit_on_error=False, print_error=False)
        values = dict(pairwise(line))
        taken = {values[name] for name in ("--pretrained-gmf", "--pretrained-mlp") if name in line}
        match line[0]:
            case "prepare":
                names = ("protocol", "validation", "filters")
                given = {name: values[f"--{name}"] for name in names if f"--{name}" in line}
                PrepareConfig(**given)
            case "train":
                done = call(*line)
                assert done.status == 0, done.err
                taken.add(line[2])
            case "evaluate":
                EvaluationConfig(candidates=values.get("--candidates", "full"))
                assert canonical_metrics([word for word in line if "@" in word])
                taken.add(line[1])
        assert taken <= made
        made.add(values.get("--output") or values.get("--run", ""))
    assert len(trained) == 10


def test_a_publication_is_trained_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "the data" / "ml-1m"
    folder.mkdir(parents=True)
    pairs = [(user, (7 * user + step) % 150, step) for user in range(30) for step in range(25)]
    text = "".join(f"{user}::{item}::4::{time}\n" for user, item, time in pairs)
    (folder / "ratings.dat").write_text(text)
    line, programs = papers_line(tmp_path, "ials-revisited"), tmp_path / "programs"
    done = run_script(line, programs, {})
    assert done.status == 0, done.err
    result = done.out.partition("published: hr@10 0.731, ndcg@10 0.452")[2]
    assert re.search(r"\n ials-1 +\d\.\d{4} +\d\.\d{4}", result)
    again = noted(papers(tmp_path, NOTE, "ials-revisited"))
    assert [line[0] for line in again] == ["evaluate"]
    more = run_script(line, programs, {"SEEDS": "3"})
    values = []
    for seed in (1, 2, 3):
        run = Run.open(tmp_path / "the runs" / "ials-revisited" / f"ials-{seed}")
        assert run.metrics is not None
        values.append(run.metrics["hr@10"])
    mean, least, most = (f"{found:.4f}" for found in (fmean(values), min(values), max(values)))
    expected = f"ials hr@10: mean {mean}, minimum {least}, maximum {most} of 3 seeds"
    assert expected in more.out.splitlines()


def test_the_script_of_publications_ends_at_the_first_error(tmp_path: Path) -> None:
    done = papers(tmp_path, f"{NOTE}; [ $1 = prepare ]")
    assert done.returncode == 1
    assert done.stdout.count("\t\n") == 2
    assert "published" not in done.stdout
    assert papers(tmp_path, NOTE, "no-such").returncode == 2
