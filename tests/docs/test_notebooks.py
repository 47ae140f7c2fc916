"""The notebooks run from top to bottom, and show as much as their stored outputs do.

After a change: ``jupyter execute --inplace docs/notebooks/*.ipynb``, in a folder of its own.
"""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def kinds(notebook: Any) -> list[list[tuple[str, list[str]]]]:
    """Of each cell of code, what its outputs are."""
    return [
        [(output.output_type, sorted(output.get("data", {}))) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.slow
def test_the_notebooks_run_and_show_what_is_stored(tmp_path: Path) -> None:
    """One after the other: kernels that start at once may choose the same ports."""
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        stored = kinds(notebook)
        resources = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=300, resources=resources).execute()
        assert kinds(notebook) == stored, path.stem
        assert any("text/html" in data for cell in stored for _, data in cell), path.stem


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first-hour", "reading-the-results"]
