"""A reader finds an entry of the troubleshooting page by a message, so both have the same words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import foretaste
from tests.docs.pages import page

ENTRIES = dict(
    re.findall(
        r"^### ([^\n]+)\n\n```text\n(.*?)^```$",
        page("troubleshooting.md").text,
        re.MULTILINE | re.DOTALL,
    )
)
SHARE = 0.4
"""Least share of an entry's characters; the rest are names, ids and numbers of an example."""


def literals(file: Path) -> list[list[str]]:
    """The text of each string of a file, cut at every inserted value."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    formatted = [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(value) for values in formatted for value in values}
    whole = [[node] for node in nodes if isinstance(node, ast.Constant) and id(node) not in parts]
    found = []
    for values in [*formatted, *whole]:
        texts = [value.value for value in values if isinstance(value, ast.Constant)]
        found.append([part for text in texts if isinstance(text, str)
                      for part in re.split(r"\{\w*(?:![rs])?\}", text)])  # fmt: skip
    return found


@pytest.fixture(scope="module")
def strings() -> list[list[str]]:
    files = Path(foretaste.__file__).parent.rglob("*.py")
    return [parts for file in files for parts in literals(file) if len("".join(parts)) >= 12]


def test_the_page_has_entries() -> None:
    assert len(ENTRIES) > 25


@pytest.mark.parametrize("heading", ENTRIES)
def test_an_entry_has_the_words_of_the_code(heading: str, strings: list[list[str]]) -> None:
    text = " ".join(ENTRIES[heading].split())
    said: set[int] = set()
    for parts in strings:
        if parts[0] not in text:
            continue
        if found := re.search(".*?".join(f"({re.escape(part)})" for part in parts), text):
            said.update(at for number in range(len(parts)) for at in range(*found.span(number + 1)))
    assert len(said) >= SHARE * len(text), "no message of the code reads like this"
