"""Every link within the README and the pages leads somewhere."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT, Page, pages

ALL = [*(Page(ROOT / f"{name}.md") for name in ("README", "CONTRIBUTING", "SECURITY")), *pages()]


@pytest.mark.parametrize("found", ALL, ids=lambda found: found.name)
def test_links_lead_somewhere(found: Page) -> None:
    for link in found.links:
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        path = (found.path.parent / target).resolve() if target else found.path
        assert path.is_relative_to(ROOT), f"{link} leads out of the clone"
        assert path.exists(), f"{link}: there is no such file"
        if anchor:
            assert anchor in Page(path).anchors, f"{link}: {path.name} has no such heading"


def test_every_page_can_be_reached() -> None:
    linked = {
        (found.path.parent / link.partition("#")[0]).resolve()
        for found in ALL
        for link in found.links
    }
    assert {found.path for found in pages()} <= linked | {DOCS / "index.md"}


def test_make_targets_of_pages_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = [block.text for found in ALL for block in found.blocks if block.language == "sh"]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    text = "\n".join([*shown, *re.findall(r"run: (make .+)", workflow)])
    targets = re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    assert {"demo", "test", "docs", "check-pins"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
