"""The page's model, word for word in a package of its own, is trained, answers and passes the
contract."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


def run(packages: Path, folder: Path, *arguments: str) -> None:
    path = os.pathsep.join(map(str, [packages, ROOT / "src", ROOT]))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
    run(installed, directory, "-c", code)


def test_the_model_passes_the_contract(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_cooccurrence.py").write_text(FILES["test_cooccurrence.py"])
    run(installed, tmp_path, "-m", "pytest", "-q", "-W", "error", "test_cooccurrence.py")
