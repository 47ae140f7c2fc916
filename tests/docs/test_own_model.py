"""The page's model, word for word in a package of its own, is trained, answers and passes the
contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forks
from tests.cli.conftest import Done, call
from tests.docs import execution
from tests.docs.execution import TIMEOUT_S
from tests.docs.pages import ROOT, page

PAGE = page("own-model.md")
FILES = {block.title: block.text for block in PAGE.blocks if block.title}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages after installing the page's package, on the path of this process and of
    its forks."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    ((group, models),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in models.items())]
    metadata = tmp_path / "packages" / "foretaste_cooccurrence-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: 1.0\n")
    (metadata.parent / "foretaste_cooccurrence.py").write_text(FILES["foretaste_cooccurrence.py"])
    monkeypatch.syspath_prepend(metadata.parent)
    yield metadata.parent
    sys.modules.pop("foretaste_cooccurrence", None)


def test_the_model_of_the_page_is_short() -> None:
    code = FILES["foretaste_cooccurrence.py"].partition("if __name__")[0].splitlines()
    assert len([line for line in code if line.strip()]) <= 41


def test_the_commands_of_the_page_take_the_model(
    installed: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainings have an interpreter of their own, because a process finds models when it starts."""
    path = os.pathsep.join(map(str, [installed, ROOT / "src"]))

    def run(*words: str) -> Done:
        if words[0] != "train":
            return call(*words)
        done = subprocess.run(
            [sys.executable, "-m", "foretaste", *words],
            env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(execution, "call", run)
    assert execution.run_page(PAGE, directory) == 8


def test_the_model_passes_the_contract(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_cooccurrence.py").write_text(FILES["test_cooccurrence.py"])
    status, out, err = forks.run(tmp_path, run_contract, timeout_s=TIMEOUT_S)
    assert status == 0, out + err
    assert re.search(r"[1-9]\d passed", out)


def run_contract() -> None:
    forked = "ignore::pytest.PytestAssertRewriteWarning"  # about modules that are imported already
    sys.exit(pytest.main(["-q", "-W", "error", "-W", forked, "test_cooccurrence.py"]))
