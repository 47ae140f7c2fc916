"""Installed packages: the pins, and the install lines of messages and pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]]

TRITON_OF_TORCH = {"2.11.0": "3.6.0", "2.13.0": "3.7.1", "2.15.0": "3.9.0"}
"""Requirements in torch's own metadata on pip's index. A build for the CPU requires no Triton, so a
wrong pin can be installed beside it, and only there."""


def pins(name: str = "constraints.txt") -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in found}


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def test_every_direct_dependency_is_pinned_within_its_bounds() -> None:
    pinned = pins()
    everything = [*REQUIRED, *(one for lines in EXTRAS.values() for one in lines)]
    direct = [one for one in everything if one.name != "foretaste"]
    for requirement in direct:
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
    assert names(direct) <= pinned.keys()


def test_a_developer_installs_every_extra() -> None:
    (extras,) = (one.extras for one in EXTRAS["dev"] if one.name == "foretaste")
    assert extras == EXTRAS.keys() - {"dev"}


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    lowest = pins("constraints-lowest.txt")
    for requirement in [*REQUIRED, *(one for lines in EXTRAS.values() for one in lines)]:
        bounds = [one.version for one in requirement.specifier if one.operator == ">="]
        if bounds:
            assert Version(lowest[canonicalize_name(requirement.name)]) == Version(bounds[0])


def test_triton_is_the_one_that_torch_requires() -> None:
    assert pins()["triton"] == TRITON_OF_TORCH[pins()["torch"]]


def test_only_versions_of_torch_that_were_tried_are_accepted() -> None:
    (torch,) = (requirement for requirement in REQUIRED if requirement.name == "torch")
    assert all(torch.specifier.contains(version) for version in TRITON_OF_TORCH)
    assert not torch.specifier.contains("2.16.0")
    # Without the bound, the line for PyTorch alone would fetch a version that is then replaced.
    for page in ("README.md", "docs/install.md"):
        lines = re.findall(r"pip install .*--index-url", (ROOT / page).read_text(encoding="utf-8"))
        assert set(lines) == {'pip install "torch<2.16" --index-url'}


def asked_for(text: str) -> list[list[str]]:
    """The words of each ``pip install`` in code or prose, without broken lines and quotes."""
    joined = re.sub(r"""['"]\n\s*f?['"]""", "", text)
    found = re.findall(r"""pip install ((?:[\w.<>=,-]|\\?"[^"\n]+\\?"|[ ])+)""", joined)
    return [re.sub(r'[\\"]', "", words).split() for words in found]


def test_no_line_installs_foretaste_from_an_index() -> None:
    """No index has foretaste."""
    places = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*")]
    places += ROOT.glob("src/**/*.py")
    lines = [words for path in places for words in asked_for(path.read_text(encoding="utf-8"))]
    assert len(lines) > 20
    assert [words for words in lines if any("foretaste" in word for word in words)] == []


def test_messages_name_the_packages_of_an_extra() -> None:
    """Messages name all packages, so that nobody installs one after another."""
    messages = {
        "tune/study.py": "tune",
        "serve/server.py": "serve",
        "report/contents.py": "report",
        "export/formats.py": "export",
        "data/preparation/__init__.py": "spark",
        "training/logs.py": "tensorboard",
    }
    for path, extra in messages.items():
        text = (ROOT / "src" / "foretaste" / path).read_text(encoding="utf-8")
        found = [names([Requirement(word) for word in words]) for words in asked_for(text)]
        assert names(EXTRAS[extra]) in found


def test_the_readme_installs_the_extras_that_it_needs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    needed = {name for name in EXTRAS if f"foretaste {name} " in text}
    needed |= {"sql"} if "SQLite" in text else set()
    (extras,) = re.findall(r"Some commands need.*?\.\[([a-z,]+)\]", text, re.DOTALL)
    assert set(extras.split(",")) == needed
