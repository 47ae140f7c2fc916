"""Makes mistakes, and catches how they are refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pytest

import foretaste
from foretaste._util.terminal import run_command
from tests.cli.conftest import call
from tests.docs.mistakes import Mistake

EXIT_MISTAKE = 2


class Refusal(NamedTuple):
    """The message that a mistake is refused with, and the name of its error."""

    text: str
    error: str


def make(mistake: Mistake, directory: Path) -> Refusal:
    """Make a mistake in ``directory``.

    Asserts that it is refused as a mistake is: with status 2, or by a ForetasteError.
    """
    with chdir(directory):
        for name, content in mistake.files.items():
            path = Path(name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        if mistake.change is not None:
            mistake.change()
        with mistake.within():
            return _refused_command(mistake) if mistake.command else _refused_python(mistake)


def _refused_command(mistake: Mistake) -> Refusal:
    raised: list[Exception] = []

    def run_and_record(work: Callable[[], None]) -> None:
        def recorded() -> None:
            try:
                work()
            except Exception as error:
                raised.append(error)
                raise

        run_command(recorded)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.cli.app.run_command", run_and_record)
        done = call(*shlex.split(mistake.command))
    assert done.status == EXIT_MISTAKE, f"{mistake.command}: {done}"
    assert done.err.startswith("error: ")
    return Refusal(done.err.removeprefix("error: "), type(raised[-1]).__name__)


def _refused_python(mistake: Mistake) -> Refusal:
    try:
        exec(mistake.python, {"foretaste": foretaste})
    except foretaste.ForetasteError as error:
        return Refusal(str(error), type(error).__name__)
    raise AssertionError(f"{mistake.python} is not refused")
