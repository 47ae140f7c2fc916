"""Every error on the troubleshooting page is one that can be met, word for word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs import mistakes_in_data, mistakes_in_runs
from tests.docs.execution import matches
from tests.docs.mistakes import Mistake
from tests.docs.pages import page
from tests.docs.shop import make_shop
from tests.docs.troubles import make

SECTIONS: dict[str, dict[str, Mistake]] = {
    "Files": mistakes_in_data.FILES,
    "Columns": mistakes_in_data.COLUMNS,
    "Values": mistakes_in_data.VALUES,
    "Settings of preparation": mistakes_in_data.SETTINGS,
    "Splits brought along": mistakes_in_data.SPLITS,
    "Named sets": mistakes_in_data.NAMED_SETS,
    "Datasets": mistakes_in_data.DATASETS,
    "Settings of training": mistakes_in_runs.TRAINING_SETTINGS,
    "While training": mistakes_in_runs.TRAINING,
    "Runs": mistakes_in_runs.RUNS,
    "Asking a run": mistakes_in_runs.QUESTIONS,
    "Command lines": mistakes_in_runs.COMMAND_LINES,
    "Options of NVIDIA's scripts": mistakes_in_runs.OLD_NAMES,
}
MISTAKES = {
    heading: mistake for section in SECTIONS.values() for heading, mistake in section.items()
}


def entries() -> dict[str, str]:
    """The message of every entry of the page, by its heading."""
    found = re.findall(
        r"^### ([^\n]+)\n\n```text\n(.*?)^```$", page("troubleshooting.md").text, re.M | re.S
    )
    return dict(found)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)
        make_shop(root)
    return root


def test_the_page_has_an_entry_for_every_mistake() -> None:
    text = page("troubleshooting.md").text
    for section, mistakes in SECTIONS.items():
        part = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^### (.+)$", part, re.MULTILINE) == list(mistakes)
    assert entries().keys() == MISTAKES.keys()


@pytest.mark.parametrize("heading", MISTAKES)
def test_each_message_reads_as_on_the_page(heading: str, shop: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(shop, tmp_path / "shop")
    said = make(MISTAKES[heading], directory)
    assert matches(entries()[heading], said), said
