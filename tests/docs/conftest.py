"""Folders for the examples of the documentation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.csv as pa_csv
import pytest
import torch

from foretaste.data import GenerateConfig, generate
from tests.docs.execution import run_page
from tests.docs.pages import page


@pytest.fixture(scope="session")
def after_quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after the quickstart without its demo; only the demo's two files are there."""
    directory = tmp_path_factory.mktemp("quickstart")
    demo = directory / "foretaste-demo"
    demo.mkdir()
    generated = generate(GenerateConfig())
    pa_csv.write_csv(generated.table, demo / "interactions.csv")
    pa_csv.write_csv(generated.items, demo / "items.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        run_page(page("quickstart.md"), directory)
    return directory


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show what a machine without a GPU prints."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def directory(after_quickstart: Path, tmp_path: Path) -> Path:
    """A copy of `after_quickstart` for one page."""
    return shutil.copytree(after_quickstart, tmp_path / "after", symlinks=True)
