"""Ctrl-C, SIGTERM and SIGHUP in a training: it ends where its state is whole."""

from __future__ import annotations

from pathlib import Path

from foretaste._util.signals import CaughtSignals
from foretaste.errors import Interrupted
from foretaste.runs.paths import resume_command


class Interruption(CaughtSignals):
    """Signals are noted while the block runs, for whoever may stop there to `check`.

    A second one acts at once, as it would have without us.
    """

    def __init__(self, run_path: Path) -> None:
        super().__init__(lambda number: self.let_go())
        self.run_path = run_path

    def check(self, where: str) -> None:
        """Raise `Interrupted` once a signal came; ``where`` says how far the training is."""
        if self.last is not None:
            command = resume_command(self.run_path)
            raise Interrupted(f"interrupted {where}; go on with: {command}", self.last)
