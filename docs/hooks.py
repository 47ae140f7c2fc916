"""Changes of the site generator to pages: examples and the help of all commands are included, and
links out of the site become the names of files."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"^# The file (examples/\S+)\n", re.MULTILINE)
_HELP = "<!-- The help of every command -->\n"
_LINK_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``[rows](../benchmarks/results/cpu.jsonl)`` as the rows and where they are in the clone."""
    return _LINK_OUT.sub(_name_file, included(markdown))


def included(markdown: str) -> str:
    """The page with each example, and the help of all commands, in place of the line for it."""
    if _HELP in markdown:
        markdown = markdown.replace(_HELP, _help())
    return _FILE.sub(lambda line: (_ROOT / line[1]).read_text(encoding="utf-8"), markdown)


@cache
def _help() -> str:
    """The help of each command, with the options that ``--help`` leaves out.

    cyclopts shows the name by which a program was called, so the help is from another process.
    """
    code = "from foretaste.cli import train_options; train_options.HIDDEN = ()\n"
    code += "from foretaste.cli.app import app; print(app.generate_docs())"
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    _, heading, commands = done.stdout.partition("## foretaste demo\n")
    return heading + commands


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
