"""The pages of the documentation in the forms that readers and tests use."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from docs.hooks import included

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_ANY_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    title: str | None
    """The name of the shown file, None if the block shows no file."""
    text: str
    line: int
    """Line of the opening fence in the page."""


@dataclass(frozen=True)
class Command:
    """One command of a console block, and its output on the page."""

    line: str
    output: str


@dataclass(frozen=True)
class Page:
    """One page of Markdown."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def text(self) -> str:
        """The page as the site has it: with examples and the help of commands."""
        return included(self.path.read_text(encoding="utf-8"))

    @cached_property
    def prose(self) -> str:
        """The page without its fenced blocks."""
        return _ANY_FENCE.sub("", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        """Every fenced block that names its language, in order."""
        return [
            Block(
                language=found["language"],
                title=found["title"],
                text=textwrap.dedent(found["text"]),
                line=self.text.count("\n", 0, found.start()) + 1,
            )
            for found in _FENCE.finditer(self.text)
        ]

    @cached_property
    def anchors(self) -> set[str]:
        """The targets of links behind ``#``; repeated headings have one target."""
        return {slug(heading) for _, heading in _HEADING.findall(self.prose)}

    @cached_property
    def links(self) -> list[str]:
        """The targets of all links, as written."""
        return _LINK.findall(re.sub(r"`[^`\n]*`", "", self.prose))

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next heading of the same level or a higher one."""
        found = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert found, f"{self.name} has no section {heading!r}"
        rest = self.text[found.end() :]
        return re.split(rf"^#{{1,{len(found[1])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]

    def rows(self, heading: str) -> list[list[str]]:
        """The rows of all tables of a section, without their headings; no backticks."""
        return table_rows(self.section(heading))


def table_rows(text: str) -> list[list[str]]:
    """The rows of all tables in Markdown, without their headings; no backticks."""
    cells = [
        [cell.replace("`", "").replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", row)]
        for row in _ROW.findall(text)
    ]
    is_rule = [all(re.fullmatch(r":?-+:?", cell) for cell in row) for row in cells]
    is_heading = [*is_rule[1:], False]
    return [
        row
        for row, rule, heading in zip(cells, is_rule, is_heading, strict=True)
        if not rule and not heading
    ]


def slug(heading: str) -> str:
    """The anchor that the site generator makes of a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    words = re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def pages() -> list[Page]:
    """Every page of the site."""
    return [page(str(path.relative_to(DOCS))) for path in sorted(DOCS.rglob("*.md"))]


def guides() -> list[Page]:
    """Every page but the help of all commands, which a process writes."""
    return [found for found in pages() if found.name != "options.md"]


@cache
def page(name: str) -> Page:
    return Page(DOCS / name)


def commands(block: Block) -> list[Command]:
    """The commands of a console block; a backslash carries one on to the next line."""
    assert block.text.startswith("$ "), f"line {block.line}: a console block begins with a $"
    found = []
    for part in re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        found.append(Command(line, output))
    return found
