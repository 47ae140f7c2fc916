"""Interruptions of a training: Ctrl-C, SIGTERM, SIGHUP and errors; each says how to resume."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foretaste._util.system import BROKEN_PIPE, CaughtSignals
from foretaste.errors import Interrupted, RankError, RunError, TrainingError
from foretaste.runs.places import resume_command
from foretaste.runs.run import Run


class Interruption(CaughtSignals):
    """Signals noted while the block runs; `check` ends the training where its state is whole.

    A second signal acts at once, as if nothing had caught the first.
    """

    def __init__(self, run_path: Path) -> None:
        super().__init__(self.note)
        self.command = resume_command(run_path)
        """The command that resumes the training."""

    def note(self, number: int) -> None:
        """Note a signal when it comes."""
        self.restore()

    def output_closed(self) -> None:
        """End the training as a signal does, because nobody reads what is printed (``| head``)."""
        self.last = BROKEN_PIPE

    def poll(self, is_due: bool, *, at_once: bool) -> tuple[bool, int | None]:
        """Return, after an update, whether to save now, and the signal that stops the training, if
        any. With ``at_once``, a save that is due must not wait for a later update.
        """
        return is_due, self.last

    def check(self, where: str) -> None:
        """Raise `Interrupted` if a signal came, in work that starts over, such as ranking."""
        self.end(where, self.last)

    def end(self, where: str, number: int | None) -> None:
        """Raise `Interrupted` for a signal, if any; ``where`` says how far the training is."""
        if number:
            raise Interrupted(f"interrupted {where}; resume with: {self.command}", number)


@contextmanager
def errors_say_how_to_resume(run: Run, command: str, *, writes: bool) -> Iterator[None]:
    """Add the kept files and the ``command`` that resumes to errors; the process that ``writes``
    logs why the training failed."""
    try:
        yield
    except RankError as error:
        error.hint = f"; resume with: {command}"
        raise
    except TrainingError as error:
        if writes:
            run.log.append("failed", stopped_because=str(error))
        error.hint = ". No epoch was evaluated before it, so no weights are kept"
        if run.has_weights:
            path = shlex.quote(str(run.path))
            error.hint = (
                f". The weights of the best epoch before it are kept: --from {path} starts from "
                "them"
            )
        raise
    except RunError as error:
        error.hint = f"; once that is fixed, resume with: {command}"
        raise
