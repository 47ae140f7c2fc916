"""The files of examples/ run like a user runs them, and print the page's output."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_file_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    program = "sh" if name.endswith(".sh") else sys.executable
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [program, EXAMPLES / name],
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
