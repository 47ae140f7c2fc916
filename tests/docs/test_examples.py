"""Every example of the documentation prints the page's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.execution import run_page
from tests.docs.pages import Page, guides, page

QUICKSTART = "quickstart.md"
EXAMPLES = [
    found.name
    for found in guides()
    if any(block.language in ("console", "python") for block in found.blocks)
    # Run by test_own_model, with the package installed, and by test_example_files.
    and found.name not in ("own-model.md", "examples.md")
]


def test_the_guides_have_examples() -> None:
    guides = {QUICKSTART, "data.md", "models.md", "training.md", "recommending.md", "serving.md"}
    guides |= {"python.md"}
    assert guides <= set(EXAMPLES)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != QUICKSTART])
def test_examples(name: str, directory: Path) -> None:
    assert run_page(page(name), directory) > 0


def test_the_quickstart_leads_to_recommendations(after_quickstart: Path) -> None:
    assert (after_quickstart / "recommendations.parquet").is_file()
    assert (after_quickstart / "runs" / "vae" / "best.safetensors").is_file()


def check(text: str, directory: Path) -> int:
    """Run a page of its own."""
    path = directory / "page.md"
    path.write_text(text, encoding="utf-8")
    return run_page(Page(path), directory)


def test_an_example_that_prints_something_else_is_found(tmp_path: Path) -> None:
    assert check("```python\nprint(1)\n```\n\n```text\n1\n```\n", tmp_path) == 1
    with pytest.raises(AssertionError, match=r"page\.md, line 1 prints\n1"):
        check("```python\nprint(1)\n```\n\n```text\n2\n```\n", tmp_path)
    with pytest.raises(AssertionError, match=r"line 1: foretaste --version prints"):
        check("```console\n$ foretaste --version\nfour\n```\n", tmp_path)
    with pytest.raises(AssertionError, match=r"compare needs two runs or more"):
        check("```console\n$ foretaste compare runs/one\n```\n", tmp_path)
