"""Every documented error message is one that can be met, word for word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.execution import matches
from tests.docs.messages import INDEX, SECTIONS, entries, index, messages
from tests.docs.pages import page
from tests.docs.shop import make_shop
from tests.docs.troubles import make

MISTAKES = {
    heading: mistake for section in SECTIONS.values() for heading, mistake in section.items()
}


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)
        make_shop(root)
    return root


def test_the_index_is_up_to_date() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(), "run python -m tests.docs.messages"


def test_every_mistake_is_documented() -> None:
    assert messages().keys() == MISTAKES.keys()


def test_explanations_stand_in_the_section_of_their_mistake() -> None:
    text, explained = page("troubleshooting.md").text, entries()
    for section, mistakes in SECTIONS.items():
        part = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        expected = [heading for heading in mistakes if heading in explained]
        assert re.findall(r"^### (.+)$", part, re.MULTILINE) == expected


@pytest.mark.parametrize("heading", MISTAKES)
def test_each_message_reads_as_documented(heading: str, shop: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(shop, tmp_path / "shop")
    message = messages()[heading]
    refusal = make(MISTAKES[heading], directory)
    assert matches(message.text, refusal.text), refusal.text
    assert refusal.error == message.error
    if heading in entries():
        prefix = "error: " if MISTAKES[heading].command else ""
        assert matches(entries()[heading], prefix + refusal.text)
