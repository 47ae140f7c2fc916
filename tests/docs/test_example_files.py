"""The files of examples/ run like a user runs them, and print the page's output."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests import forks
from tests.docs.execution import TIMEOUT_S, matches
from tests.docs.pages import ROOT, page

EXAMPLES = ROOT / "examples"
SHOWN = {
    code.title: shown.text
    for code, shown in pairwise(page("examples.md").blocks)
    if code.title is not None and shown.language == "text" and shown.title is None
}
CONVERT = {"ncf_to_csv.py", "vae_to_csv.py"}
"""Run by test_conversion.py on files of the reference systems."""


def test_every_file_is_shown_and_short() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.iterdir()}
    assert files.keys() - CONVERT == SHOWN.keys()
    lines = {name: sum(map(bool, text.split("\n"))) for name, text in files.items()}
    assert max(lines.values()) < 60, lines


def run_python(path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHOWN if name.endswith(".py")])
def test_a_program_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    status, out, err = forks.run(tmp_path, run_python, EXAMPLES / name, timeout_s=TIMEOUT_S)
    assert status == 0, err
    assert matches(SHOWN[name], out), out


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHOWN if name.endswith(".sh")])
def test_a_script_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", EXAMPLES / name],
        cwd=tmp_path,
        env=os.environ
        | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert matches(SHOWN[name], done.stdout), done.stdout
