"""Changes of the site generator to pages: examples, the help of all commands and the fields of
classes are included, and links out of the site become the names of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"^# The file (examples/\S+)\n", re.MULTILINE)
_HELP = "<!-- The help of every command -->\n"
_FIELDS = re.compile(r"^<!-- The fields of (\w+) in (\S+) -->\n", re.MULTILINE)
_LINK_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``[rows](../benchmarks/results/cpu.jsonl)`` as the rows and where they are in the clone."""
    return _LINK_OUT.sub(_name_file, included(markdown))


def included(markdown: str) -> str:
    """The page with each example, table and help in place of the line for it."""
    if _HELP in markdown:
        markdown = markdown.replace(_HELP, _help())
    markdown = _FIELDS.sub(_table_of_fields, markdown)
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


def _table_of_fields(line: re.Match[str]) -> str:
    """A table of a class's fields and their docstrings."""
    module = ast.parse((_ROOT / line[2]).read_text(encoding="utf-8"))
    (found,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == line[1])
    rows = ["| key | holds |\n|---|---|\n"]
    for field, text in pairwise(found.body):
        if isinstance(field, ast.AnnAssign):
            held = ast.literal_eval(text.value) if isinstance(text, ast.Expr) else ""
            words = " ".join(held.replace("``", "`").split())
            rows.append(f"| `{ast.unparse(field.target)}` | {words} |\n")
    return "".join(rows)


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
