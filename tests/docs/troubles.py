"""Makes mistakes, and catches what is said of them."""

from __future__ import annotations

import shlex
from contextlib import chdir
from pathlib import Path

import foretaste
from tests.cli.conftest import call
from tests.docs.mistakes import Mistake

EXIT_MISTAKE = 2


def make(mistake: Mistake, directory: Path) -> str:
    """What is said of a mistake made in ``directory``: the command's output, or the error's text.

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
            return _refused(mistake)


def _refused(mistake: Mistake) -> str:
    if mistake.command:
        done = call(*shlex.split(mistake.command))
        assert done.status == EXIT_MISTAKE, f"{mistake.command}: {done}"
        return done.err
    try:
        exec(mistake.python, {"foretaste": foretaste})
    except foretaste.ForetasteError as error:
        return str(error)
    raise AssertionError(f"{mistake.python} is not refused")
