"""The threat model holds: each of its sentences names existing tests."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, page

PAGE = page("reliability.md")
HEADINGS = (
    "What is trusted",
    "Files are never trusted",
    "Requests are never trusted",
    "What is left to you",
)
ROWS = [row for heading in HEADINGS for row in PAGE.rows(heading)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_sentence_names_its_tests(row: list[str]) -> None:
    sentence, tests = row
    assert sentence.count(". ") == 0
    assert tests
    for named in tests.split(", "):
        file, _, name = named.partition("::")
        code = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:async )?def {name}\(", code, re.MULTILINE), named


def test_no_sentence_is_without() -> None:
    """Apart from the tables, the page has headings and one paragraph that introduces the tables."""
    tables, *_ = PAGE.section("Security").partition("\n### What the network saw\n")
    assert PAGE.rows("What the network saw")
    lines = tables.split("\n### ", 1)[1].splitlines()
    assert [line for line in lines if line and not line.startswith("|")] == [
        HEADINGS[0],
        *(f"### {heading}" for heading in HEADINGS[1:]),
    ]
