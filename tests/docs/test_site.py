"""The site builds without a warning, and makes no request to other hosts."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import forks
from tests.docs.execution import TIMEOUT_S
from tests.docs.pages import ROOT, pages

pytestmark = pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("material") is None,
    reason="mkdocs-material is not installed: pip install '.[docs]'",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    status, out, err = forks.run(ROOT, build, directory, timeout_s=TIMEOUT_S)
    assert status == 0, out + err
    return directory


def build(directory: Path) -> None:
    from mkdocs.__main__ import cli

    cli(["build", "--strict", "--quiet", "--site-dir", str(directory)])


def test_every_page_is_on_it(site: Path) -> None:
    made = {path.stem for path in site.glob("*.html")} - {"404"}
    assert made == {found.path.stem for found in pages()}
    home = (site / "index.html").read_text(encoding="utf-8")
    assert all(f'href="{name}.html"' in home for name in made - {"index"})


LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="?([^\s">]+)|<link\b[^>]*\bhref="?([^\s">]+)"""
)


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    for path in site.glob("*.html"):
        found = {"".join(pair) for pair in LOADS.findall(path.read_text(encoding="utf-8"))}
        assert found
        outside = {address for address in found if re.match(r"(https?:)?//", address)}
        assert not outside, f"{path.name}: {outside}"


def test_links_out_of_the_site_name_the_file(site: Path) -> None:
    for path in site.glob("*.html"):
        assert not re.search(r'href="?\.\./', path.read_text(encoding="utf-8")), path.name
