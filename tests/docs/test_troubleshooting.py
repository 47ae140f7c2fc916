"""A reader finds a row of the troubleshooting page by a message, so both have the same words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import foretaste
from tests.docs.pages import page, table_rows

MESSAGES = [row[0] for row in table_rows(page("troubleshooting.md").text)]


def texts(file: Path) -> list[str]:
    """The strings of a file, with ``...`` for every inserted value."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "..." for v in node.values]
            found.append("".join(str(part) for part in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(re.sub(r"\{\w*(?:![rs])?\}", "...", node.value))
    return found


@pytest.fixture(scope="module")
def strings() -> list[str]:
    files = Path(foretaste.__file__).parent.rglob("*.py")
    return [text for file in files for text in texts(file)]


def test_the_page_has_rows() -> None:
    assert len(MESSAGES) > 20


@pytest.mark.parametrize("message", MESSAGES)
def test_a_row_has_the_words_of_the_code(message: str, strings: list[str]) -> None:
    assert any(message in text for text in strings), "no message of the code reads like this"
