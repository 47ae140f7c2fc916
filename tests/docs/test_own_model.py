"""The page's model, word for word in a package of its own, is trained, answers and passes the
contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import forks
from tests.docs.execution import TIMEOUT_S
from tests.docs.pages import ROOT, page

PAGE = page("own-model.md")
FILES = {block.title: block.text for block in PAGE.blocks if block.title}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages after installing the page's package."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    ((group, models),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in models.items())]
    metadata = tmp_path / "packages" / "foretaste_cooccurrence-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: 1.0\n")
    (metadata.parent / "foretaste_cooccurrence.py").write_text(FILES["foretaste_cooccurrence.py"])
    return metadata.parent


def test_the_model_of_the_page_is_short() -> None:
    code = FILES["foretaste_cooccurrence.py"].partition("if __name__")[0].splitlines()
    assert len([line for line in code if line.strip()]) <= 41


def test_the_commands_of_the_page_take_the_model(installed: Path, directory: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from tests.docs.execution import run_page\n"
        "from tests.docs.pages import page\n"
        "assert run_page(page('own-model.md'), Path()) == 8"
    )
    path = os.pathsep.join(map(str, [installed, ROOT / "src", ROOT]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_model_passes_the_contract(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_cooccurrence.py").write_text(FILES["test_cooccurrence.py"])
    monkeypatch.syspath_prepend(installed)  # the other process has the same path
    status, out, err = forks.run(tmp_path, run_contract, timeout_s=TIMEOUT_S)
    assert status == 0, out + err
    assert re.search(r"[1-9]\d passed", out)


def run_contract() -> None:
    forked = "ignore::pytest.PytestAssertRewriteWarning"  # about modules that are imported already
    sys.exit(pytest.main(["-q", "-W", "error", "-W", forked, "test_cooccurrence.py"]))
