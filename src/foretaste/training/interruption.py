"""Ends of a training before its end: Ctrl-C, SIGTERM, SIGHUP and errors; each says how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foretaste._util.process import CaughtSignals
from foretaste.errors import Interrupted, RunError, TrainingError
from foretaste.runs.paths import resume_command
from foretaste.runs.run import Run


class Interruption(CaughtSignals):
    """Signals noted while the block runs; `check` ends the training where its state is whole.

    A second signal acts at once, as it would have without us.
    """

    def __init__(self, run_path: Path) -> None:
        super().__init__(lambda number: self.let_go())
        self.run_path = run_path

    def check(self, where: str) -> None:
        """Raise `Interrupted` once a signal came; ``where`` says how far the training is."""
        if self.last is not None:
            command = resume_command(self.run_path)
            raise Interrupted(f"interrupted {where}; go on with: {command}", self.last)


@contextmanager
def errors_say_how_to_go_on(run: Run) -> Iterator[None]:
    """Have errors name the files kept and the way to go on."""
    try:
        yield
    except TrainingError as error:
        kept = "No epoch was evaluated before it, so no weights are kept"
        if run.has_weights:
            path = shlex.quote(str(run.path))
            kept = (
                f"The weights of the best epoch before it are kept: --from {path} starts from them"
            )
        raise TrainingError(f"{error}. {kept}") from error
    except RunError as error:
        command = resume_command(run.path)
        raise RunError(f"{error}; once that is mended, go on with: {command}") from error
