"""Runs the examples of a page in order, and compares their output with the page.

``console`` blocks hold commands behind ``$`` and their output; a service that is started behind
``&`` runs to the end of the page, and ``curl`` asks it; ``python`` blocks run in one namespace, and
a ``text`` block behind one is its output. A block with a title is a file that exists before the
following blocks run. ``sh`` blocks are not run.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cli.conftest import Done, call
from tests.docs.pages import ROOT, Block, Command, Page, commands
from tests.launched import launched
from tests.serve import processes

TIMEOUT_S = 300.0
SERVICE_PORT = 8000

_PROGRAMS = ("foretaste", "torchrun", "curl")
_served_at: list[int] = []
"""Ports of the services that the page has started."""

_TOKEN = re.compile(
    r"(?P<open>\.\.\.)"
    r"|(?P<measure>\d[\d,]*(?:\.\d+)?(?:e-?\d+)? (?:s|k|M|MiB|ms)\b)"
    r"|(?P<real>(?<![\d.])[+-]?\d+\.\d+(?![\d.]))"
    r"|(?P<space>\s+)"
)
_PATTERNS = {
    "open": r".*?",
    "measure": r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)? ?[skmMGiB]*",
    "real": r"([+-]?\d+\.\d+)",
    "space": r"\s+",
}


def run_page(page: Page, directory: Path) -> int:
    """Run every example of ``page`` in ``directory``; return their number."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    num_examples = 0
    with contextlib.chdir(directory), contextlib.ExitStack() as services:
        for block, following in pairwise([*page.blocks, None]):
            assert block is not None
            if block.title is not None:
                _write(block)
            elif block.language == "console":
                for command in commands(block):
                    _run_command(page, block, command, services)
                    num_examples += 1
            elif block.language == "python":
                _run_python(page, block, following, namespace)
                num_examples += 1
    return num_examples


def matches(shown: str, printed: str) -> bool:
    """Whether ``printed`` equals the ``shown`` text.

    White space is white space, ``...`` stands for anything, and times, rates and memory for any
    other. A number with a decimal point may differ in the second digit: scores and metrics do, a
    little, from one processor to the next.
    """
    pattern, reals, end = "", [], 0
    for token in _TOKEN.finditer(shown.strip()):
        pattern += re.escape(shown.strip()[end : token.start()]) + _PATTERNS[str(token.lastgroup)]
        reals += [float(token[0])] if token.lastgroup == "real" else []
        end = token.end()
    pattern += re.escape(shown.strip()[end:])
    found = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    return found is not None and all(
        abs(float(text) - real) <= 0.01 + 0.02 * abs(real)
        for text, real in zip(found.groups(), reals, strict=True)
    )


def on_ranks(words: Sequence[str], directory: Path) -> Done:
    """Run a command line of torchrun on ranks that are forked."""
    option, number, *rest = words[1:5]
    assert (option, number.isdigit(), rest) == ("--nproc-per-node", True, ["-m", "--"])
    program, *line = words[5:]
    assert program == "foretaste"
    env = {"CUDA_VISIBLE_DEVICES": ""}
    with launched(int(number), shlex.join(line), directory, env=env) as ranks:
        status = max(abs(status or 0) for status in ranks.statuses())
    return Done(status, ranks.stdout, ranks.stderr)


def _by_torchrun(words: Sequence[str]) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words[1:]],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _write(block: Block) -> None:
    path = Path(str(block.title))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def _run_command(
    page: Page, block: Block, command: Command, services: contextlib.ExitStack
) -> None:
    where = f"{page.name}, line {block.line}: {command.line}"
    words = shlex.split(command.line, comments=True)
    assert words[0] in _PROGRAMS, f"{where}: other programs are in sh blocks"
    if words[-1] == "&":
        done = _start_service(words[2:-1], services)
    elif words[0] == "curl":
        done = _curl(words[1:])
    elif words[0] == "foretaste":
        done = call(*words[1:])
    else:
        # torchrun and its ranks take seconds to start, so lines that do not train run without it.
        done = _by_torchrun(words) if "train" in words[5:7] else on_ranks(words, Path.cwd())
    # A step that takes half a minute on a busy machine prints its progress.
    printed = re.sub(r"(?m)^.+: \d+%, [-:\d]+ left *\n", "", done.out + done.err)
    assert (done.status != 0) == command.output.startswith("error: "), f"{where}\n{printed}"
    if command.output.strip():
        assert matches(command.output, printed), f"{where} prints\n{printed}"


def _start_service(arguments: Sequence[str], services: contextlib.ExitStack) -> Done:
    """Start the service at a free port in place of the page's port."""
    served = services.enter_context(processes.serve(*arguments))
    _served_at.append(served.port)
    services.callback(_served_at.pop)
    return Done(0, served.said.replace(f":{served.port}", f":{SERVICE_PORT}"), "")


def _curl(words: Sequence[str]) -> Done:
    """The output of ``curl -s [--json BODY] URL``."""
    assert words[0] == "-s"
    url = urlsplit(words[-1])
    assert (url.hostname, url.port) == ("127.0.0.1", SERVICE_PORT), words[-1]
    body = words[2] if words[1] == "--json" else None
    connection = http.client.HTTPConnection("127.0.0.1", _served_at[-1], timeout=TIMEOUT_S)
    try:
        headers = {"content-type": "application/json"}
        connection.request(
            "GET" if body is None else "POST", f"{url.path}?{url.query}", body, headers
        )
        return Done(0, connection.getresponse().read().decode(), "")
    finally:
        connection.close()


def _run_python(
    page: Page, block: Block, following: Block | None, namespace: dict[str, Any]
) -> None:
    where = f"{page.name}, line {block.line}"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.text, str(page.path), "exec"), namespace)
    shown = ""
    if following is not None and following.language == "text" and following.title is None:
        shown = following.text
    assert matches(shown, printed.getvalue()), f"{where} prints\n{printed.getvalue()}"
