"""Signals that ask a process to end: caught for a while, and exceptions within a command."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from foretaste._util.files import atomic_file
from foretaste._util.system import ENDING, CaughtSignals
from foretaste._util.terminal import exit_with_status


@pytest.mark.parametrize("number", ENDING)
def test_signals_are_caught_until_they_are_let_go(number: int) -> None:
    before = signal.getsignal(number)
    caught: list[int] = []
    with CaughtSignals(caught.append) as signals:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        signals.restore()
        assert signal.getsignal(number) is before
    assert (caught, signals.last) == ([number] * 2, number)


@pytest.mark.parametrize("number", ENDING)
def test_a_command_that_is_ended_leaves_nothing_half_written(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lists.csv").write_text("before")

    def work() -> None:
        with atomic_file(tmp_path / "lists.csv") as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), number)

    with pytest.raises(SystemExit) as ended, exit_with_status():
        work()
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == "interrupted\n"
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_an_error_that_a_library_makes_of_an_interrupt_ends_like_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise AttributeError("partially initialized module") from None

    with pytest.raises(SystemExit) as ended, exit_with_status():
        work()
    assert ended.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "interrupted\n"
