"""The recipes for containers are consistent with the clone; they are not built here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tests.docs.pages import ROOT, page


@dataclass(frozen=True)
class Instruction:
    name: str
    words: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def instructions() -> list[Instruction]:
    """The Dockerfile's, comments and line breaks taken out."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text)
    return [Instruction(line.split()[0], line.split()[1:]) for line in joined.splitlines() if line]


def stages() -> list[list[Instruction]]:
    """What stands before the first FROM, then each stage from its FROM on."""
    found: list[list[Instruction]] = [[]]
    for instruction in instructions():
        if instruction.name == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def let_in(path: str) -> bool:
    """Whether .dockerignore lets a path into the build; its last line that fits decides."""
    verdict = True
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = line.removeprefix("!")
        if pattern.startswith("**/"):
            fits = pattern.removeprefix("**/") in path.split("/")
        else:
            fits = pattern in ("*", path) or path.startswith(f"{pattern}/")
        verdict = line.startswith("!") if fits else verdict
    return verdict


def test_instructions_are_known() -> None:
    known = {"ARG", "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    assert {instruction.name for instruction in instructions()} <= known
    assert len(stages()) == 3


def test_arguments_have_defaults_and_are_used_and_described() -> None:
    arguments = {
        (name, default)
        for instruction in instructions()
        if instruction.name == "ARG"
        for name, equals, default in [instruction.text.partition("=")]
        if equals
    }
    assert len(arguments) == len([found for found in instructions() if found.name == "ARG"])
    uses = " ".join(found.text for found in instructions() if found.name != "ARG")
    for name, _ in arguments:
        assert f"${{{name}" in uses
    assert {row[0] for row in page("install.md").rows("In a container")} == {
        name for name, _ in arguments
    }


def test_what_is_copied_is_there_and_let_in() -> None:
    _, build, final = stages()
    copied = [source for found in build if found.name == "COPY" for source in found.words[:-1]]
    assert {"pyproject.toml", "constraints.txt", "src", "README.md", "LICENSE"} == set(copied)
    for source in copied:
        assert (ROOT / source).exists()
        assert let_in(source)
    assert not let_in("tests/conftest.py")
    assert not let_in("src/foretaste/__pycache__/x.pyc")
    assert [found.words for found in final if found.name == "COPY"] == [
        ["--from=build", "/opt/foretaste", "/opt/foretaste"]
    ]


def test_it_does_not_run_as_root() -> None:
    _, _, final = stages()
    users = [found.text for found in final if found.name == "USER"]
    assert users
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    after = [found.name for found in final[final.index(Instruction("USER", [users[-1]])) + 1 :]]
    assert after == ["ENTRYPOINT", "CMD"]


def test_no_tools_for_development_are_installed() -> None:
    text = " ".join(found.text for found in instructions())
    assert "[dev]" not in text
    assert "--editable" not in text


def test_the_devcontainer_runs_the_tests() -> None:
    config = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert config["postCreateCommand"] == "make test"
    assert re.search(r"^test:", (ROOT / "Makefile").read_text(), re.MULTILINE)
