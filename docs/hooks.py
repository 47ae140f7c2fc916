"""Changes of the site generator to pages: examples are included, and links out of the site become
the names of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"^# The file (examples/\S+)\n", re.MULTILINE)
_LINK_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``[rows](../benchmarks/results/cpu.jsonl)`` as the rows and where they are in the clone."""
    return _LINK_OUT.sub(_name_file, with_files(markdown))


def with_files(markdown: str) -> str:
    """The page with the text of each example in place of the line that names it."""
    return _FILE.sub(lambda line: (_ROOT / line[1]).read_text(encoding="utf-8"), markdown)


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
