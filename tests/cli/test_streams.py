"""A long command on a terminal, with and without colours. `tests.cli.conftest.call` checks for
every command that neither bars nor colours go into a pipe.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from foretaste.cli.app import main

LINE = "train gmf data --factors 4 --epochs 2 --batch-size 500 --run runs/made"
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9\d|10\d)(?:;\d+)*m")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [False, True])
def test_bars_and_colours_are_for_terminals(
    no_color: bool, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    out, err = Terminal(), Terminal()
    with redirect_stdout(out), redirect_stderr(err):
        main(LINE.split())
    said = out.getvalue() + err.getvalue()
    assert "\x1b[" in said
    assert "\r" in said
    assert bool(COLOR.search(said)) != no_color
