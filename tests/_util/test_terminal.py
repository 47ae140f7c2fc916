"""Text made safe for a terminal; exit statuses are tested with the commands."""

from __future__ import annotations

import json
import sys
from io import BytesIO, TextIOWrapper

import pytest

from foretaste._util.terminal import print_data, printable
from foretaste.errors import ForetasteError
from tests.messages import raises

HOSTILE = [
    ("\x1b]0;owned\x07", r"\u001b]0;owned\u0007"),
    ("\x1b[2J", r"\u001b[2J"),
    ("\x9b31m", r"\u009b31m"),
    ("a\rb\x08\x7f", r"a\u000db\u0008\u007f"),
    ("user\u202etxt.exe", r"user\u202etxt.exe"),
    ("\u2066x\u2069", r"\u2066x\u2069"),
    ("a\u2028b\x85c", r"a\u2028b\u0085c"),
    ("two\nlines", r"two\u000alines"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_characters_that_command_a_terminal_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("text", ["Amélie (2001)", "七人の侍", "שלום", "🏴‍☠️ x", r"C:\new\u", ""])
def test_other_text_is_shown_unchanged(text: str) -> None:
    assert printable(text) == text


def stdout(encoding: str, *, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> BytesIO:
    """Replace stdout by a stream with this encoding; the result collects the written bytes."""
    written = BytesIO()
    stream = TextIOWrapper(written, encoding=encoding, errors="replace", write_through=True)
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    return written


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_data_are_utf8_in_every_locale(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = stdout(encoding, is_terminal=False, monkeypatch=monkeypatch)
    print_data("usér0\x1b")
    assert written.getvalue().decode() == "usér0\x1b\n"


def test_data_that_a_terminal_cannot_show_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stdout("latin-1", is_terminal=True, monkeypatch=monkeypatch)
    print_data("usér0\x9b")
    assert written.getvalue().decode("latin-1") == "usér0\\u009b\n"
    with raises(ForetasteError, "\\u4e03", "latin-1", "PYTHONIOENCODING=utf-8"):
        print_data("七人")
    assert "?" not in written.getvalue().decode("latin-1")
