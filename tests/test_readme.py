"""The README's commands and its Python, run on a tiny file as a reader would."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow.csv as pa_csv
import pytest

from foretaste.cli.app import main
from foretaste.data import GenerateConfig, generate

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Every command line of the console blocks, as words."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the two files that the README speaks of."""
    generated = generate(GenerateConfig(num_users=60, num_items=40, num_interactions=900))
    pa_csv.write_csv(generated.table, tmp_path / "ratings.csv")
    pa_csv.write_csv(generated.items, tmp_path / "movies.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run_in_order(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = [words[1:] for words in commands() if words[0] == "foretaste"]
    assert len(ours) >= 3
    for words in ours:
        main(words)
        assert capsys.readouterr().out
    assert (directory / "recommendations.parquet").is_file()


def test_the_python_runs(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("user 42\n")


def test_every_other_command_is_of_the_clone() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    others = [words for words in commands() if words[0] != "foretaste"]
    targets = [words[1] for words in others if words[0] == "make"]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert {words[0] for words in others} == {"make", "pip"}
