"""Every setting is in a table of the pages with its default, and every option on a page exists."""

from __future__ import annotations

import re
import shlex

import pytest
from cyclopts import App

import foretaste
from foretaste.cli.app import app
from foretaste.data.spellings import find_spelling
from tests.docs.pages import Block, Page, guides, page, pages

OF_OTHER_SCRIPTS = {
    "coming-from-nvidia.md",
    "examples.md",
    "reliability.md",
    "results.md",
    "troubleshooting.md",
}
"""Pages that also name options of other scripts, old and new."""

OF_OTHER_PROGRAMS = {
    *("--detach", "--entrypoint", "--no-deps"),  # docker compose
    "--build-arg",
    "--cpus",
    "--cpus-per-task",
    "--gpus",
    "--gpus-per-node",
    "--index-url",
    "--json",
    "--local-addr",
    "--logdir",
    "--cpu-list",
    "--max-restarts",
    "--numa-binding",
    "--nnodes",
    "--nodes",
    "--nproc-per-node",
    "--ntasks-per-node",
    "--power",  # of the model on own-model.md
    "--preload",  # gunicorn
    "--rdzv-backend",
    "--rdzv-conf",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rm",
    "--signal",
    "--tag",
    "--volume",
}


def test_the_page_of_options_has_every_command() -> None:
    text = page("options.md").text
    assert set(re.findall("(?m)^##+ (.+)$", text)) == {n for n in commands_of(app) if " " in n}
    assert all(
        f"`{rare} " in text for rare in ("--eps", "--validation-users", "--checkpoint-every-s")
    )


def commands_of(program: App, name: str = "foretaste") -> dict[str, App]:
    """Every command by its full name, sub-commands too."""
    found = {name: program}
    for word in program:
        if word not in {"--help", "-h", "--version"}:
            found |= commands_of(program[word], f"{name} {word}")
    return found


def options() -> set[str]:
    """Every long option of every command."""
    found = {"--help", "--version"}
    for name, command in commands_of(app).items():
        found |= {word for word in name.split() if word.startswith("--")}
        if command.default_command is not None:
            for argument in command.assemble_argument_collection():
                found |= {option for option in argument.names if option.startswith("--")}
    return found


def test_pages_name_options_that_there_are() -> None:
    known = options() | OF_OTHER_PROGRAMS
    for found in pages():
        if found.name in OF_OTHER_SCRIPTS:
            continue
        shown = [block.text for block in found.blocks if block.language != "text"]
        named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join([found.prose, *shown])))
        assert named <= known, f"{found.name}: {sorted(named - known)}"


def shown_commands() -> list[tuple[str, str]]:
    """The foretaste commands in blocks that do not run and are no files, by page."""

    def lines(found: Page, block: Block) -> list[tuple[str, str]]:
        text = block.text.replace("\\\n", " ")
        return [(found.name, line) for line in text.splitlines() if line.startswith("foretaste ")]

    return [
        command
        for found in guides()
        for block in found.blocks
        if block.language == "sh" and block.title is None
        for command in lines(found, block)
    ]


@pytest.mark.parametrize(("name", "line"), shown_commands())
def test_commands_that_are_only_shown_can_be_read(name: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_every_public_name_is_explained() -> None:
    rows = dict(page("python.md").rows("Every name"))
    assert rows.keys() == {*foretaste.__all__} - {"__version__"}
    assert all(rows.values())


def test_columns_are_found_by_the_names_shown() -> None:
    roles = {"user": "user_id", "item": "item_id", "rating": "rating", "time": "time"}
    rows = page("data.md").rows("Columns")
    assert {row[0] for row in rows} == roles.keys()
    for role, names, _ in rows:
        for name in names.split(", "):
            assert find_spelling([name, "else"], roles[role], "the page") == name
