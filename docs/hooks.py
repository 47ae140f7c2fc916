"""Changes of the site generator to pages: examples, the help of all commands, the public names, the
searched settings, the metrics, the fields of classes and the names of other programs are included,
and links out of the site become the names of files."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from functools import cache, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"^# The file (examples/\S+)\n", re.MULTILINE)
_FIELDS = re.compile(r"^<!-- The fields of (\w+) in (\S+) -->\n", re.MULTILINE)
_OLD_OPTIONS = re.compile(r"^<!-- The options of (\w+) for (train \w+) -->\n", re.MULTILINE)
_OTHER_NAMES = re.compile(r"^<!-- The names of (\w+) -->\n", re.MULTILINE)
_LINK_OUT = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``[rows](../benchmarks/results/cpu.jsonl)`` as the rows and where they are in the clone."""
    return _LINK_OUT.sub(_name_file, included(markdown))


def included(markdown: str) -> str:
    """The page with each example, table and help in place of the line for it."""
    for what, make in _MADE.items():
        if what in markdown:
            markdown = markdown.replace(what, make())
    markdown = _FIELDS.sub(_rows_of_fields, markdown)
    markdown = _OTHER_NAMES.sub(_rows_of_other_names, markdown)
    markdown = _OLD_OPTIONS.sub(_table_of_old_options, markdown)
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


def _rows_of_fields(line: re.Match[str]) -> str:
    """Rows of a table with a class's fields and their docstrings."""
    module = ast.parse((_ROOT / line[2]).read_text(encoding="utf-8"))
    (found,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == line[1])
    rows = []
    for field, text in pairwise(found.body):
        if isinstance(field, ast.AnnAssign):
            held = ast.literal_eval(text.value) if isinstance(text, ast.Expr) else ""
            rows.append(f"| `{ast.unparse(field.target)}` | {_in_a_cell(held)} |\n")
    return "".join(rows)


def _rows_of_names() -> str:
    """Rows of a table with the public names and the first paragraphs of their docstrings."""
    import foretaste

    rows = []
    for name in sorted({*foretaste.__all__} - {"__version__"}):
        first, *_ = inspect.getdoc(getattr(foretaste, name)).split("\n\n")
        rows.append(f"| `{name}` | {_in_a_cell(first)} |\n")
    return "".join(rows)


def _rows_of_searches() -> str:
    """Rows of a table with the models and the settings that ``tune`` searches."""
    from foretaste.models.registry import MODEL_NAMES, config_class

    spaces = {name: config_class(name).search_space for name in MODEL_NAMES}
    return "".join(f"| `{name}` | {', '.join(each)} |\n" for name, each in spaces.items() if each)


def _rows_of_metrics() -> str:
    """Rows of a table with the metrics and the definitions that ``evaluate`` prints."""
    from foretaste.evaluation.config import METRICS

    return "".join(f"| `{name}@k` | {text} |\n" for name, text in METRICS.items())


_MADE = {
    "<!-- The help of every command -->\n": _help,
    "<!-- The public names -->\n": _rows_of_names,
    "<!-- The searched settings -->\n": _rows_of_searches,
    "<!-- The metrics -->\n": _rows_of_metrics,
}
"""What the page has in place of a line."""


def _rows_of_other_names(line: re.Match[str]) -> str:
    """Rows of a table with the names of another library and those of foretaste."""
    from foretaste._util.other_names import OTHER_NAMES

    named = OTHER_NAMES[line[1]].items()
    return "".join(
        f"| `{name}` | {', '.join(f'`{our}`' for our in ours)} |\n" for name, ours in named
    )


def _in_a_cell(docstring: str) -> str:
    return " ".join(docstring.replace("``", "`").split())


def _table_of_old_options(line: re.Match[str]) -> str:
    """A table of a script's options, what each is here, and the first sentence of its help."""
    from cyclopts import App

    from foretaste.cli import nvidia
    from foretaste.cli.app import app
    from foretaste.cli.nvidia_rules import LONG_NAMES

    command = reduce(App.__getitem__, line[2].split(), app)
    arguments = command.assemble_argument_collection(parse_docstring=True)
    helps = {name: argument.parameter.help for argument in arguments for name in argument.names}
    heads = ["theirs", "train", "test", "benchmark", "about"]
    rows = [f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n"]
    for old in getattr(nvidia, line[1]):
        names = old.names.split()
        ours = old.train.split()[0] if isinstance(old.train, str) else names[-1].replace("_", "-")
        help_text = "" if callable(old.train) else helps.get(LONG_NAMES.get(ours, ours), "")
        cells = [
            ", ".join(f"`{name}`" for name in names),
            *(_rule(getattr(old, head)) for head in heads[1:-1]),
            old.note or re.split(r"[.;] |\.$", " ".join(help_text.split()))[0],
        ]
        rows.append(f"| {' | '.join(cells)} |\n")
    return "".join(rows)


def _rule(rule: Any) -> str:
    """What a rule of the translator makes of an option."""
    if callable(rule):
        return "" if rule.__name__ == "ignore" else rule.__doc__.removesuffix(".")
    return (
        "the same" if rule is None else f"`{re.sub(r'(?<=[A-Z]) {}', '', rule)}`".replace("{}", "N")
    )


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
