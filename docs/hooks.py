"""What the site generator does to pages: links out of the site become the names of the files."""

from __future__ import annotations

import re
from typing import Any

_LINK_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``[rows](../benchmarks/results/cpu.jsonl)`` as the rows and where they are in the clone."""
    return _LINK_OUT.sub(_name_file, markdown)


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
