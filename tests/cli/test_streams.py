"""Long commands on a terminal, in a pipe, and where colours are not wanted."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from foretaste.cli.app import main

LINES = {
    "prepare": "prepare ratings.csv --items items.csv --output made",
    "train": "train gmf data --factors 4 --epochs 2 --batch-size 500 --run runs/made",
    "evaluate": "evaluate runs/vae",
    "compare": "compare runs/popularity runs/vae",
    "report": "report runs/vae --output made.html --num-people 0",
    "recommend": "recommend runs/vae --all --output made.parquet",
    "export": "export runs/vae --format torch --output made",
    "compete": "compete data --models popularity ease --output made",
}
MODES = [(verb, "piped") for verb in LINES] + [("train", "NO_COLOR"), ("train", "")]
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9\d|10\d)(?:;\d+)*m")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("verb", "mode"), MODES)
def test_bars_and_colours_are_for_terminals(
    verb: str, mode: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if mode == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    kind = io.StringIO if mode == "piped" else Terminal
    out, err = kind(), kind()
    with redirect_stdout(out), redirect_stderr(err):
        main(LINES[verb].split())
    said = out.getvalue() + err.getvalue()
    assert ("\x1b[" in said) == (mode != "piped"), said
    assert ("\r" in said) == (mode != "piped"), said
    assert bool(COLOR.search(said)) == (mode == "")
