"""Ends of a training before its end: Ctrl-C, SIGTERM, SIGHUP and errors; each says how to go on."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from foretaste._util.process import ENDING, CaughtSignals, launch
from foretaste.errors import Interrupted, RankError, RunError, TrainingError
from foretaste.ops.ranks import ALONE, Ranks
from foretaste.runs.paths import resume_command
from foretaste.runs.run import Run

_AGREED_EVERY_S = 0.2
_MAX_UPDATES = 1000
"""Most updates between two agreements."""

_SAME_SIGNAL_S = 2.0
"""A scheduler may signal torchrun, which passes it on, and its ranks too."""


class Interruption(CaughtSignals):
    """Signals noted while the block runs; `check` ends the training where its state is whole.

    A second signal acts at once, as it would have without us.
    """

    def __init__(self, run_path: Path, ranks: Ranks = ALONE) -> None:
        super().__init__(self._note)
        self.run_path = run_path
        self.ranks = ranks
        self._came_at: float | None = None

    def check(self, where: str, number: int | None = None) -> None:
        """Raise `Interrupted` once a signal came; ``where`` says how far the training is.

        Among ranks, ``number`` is that of the signal that they have agreed on.
        """
        number = self.last if self.ranks.size == 1 else number
        if number:
            command = how_to_go_on(self.run_path, self.ranks)
            raise Interrupted(f"interrupted {where}; go on with: {command}", number)

    def _note(self, number: int) -> None:
        now = time.monotonic()
        if self.ranks.size == 1:
            self.let_go()
        elif self._came_at is None:
            self._came_at = now
        elif now - self._came_at > _SAME_SIGNAL_S:
            for ending in ENDING:
                signal.signal(ending, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class Agreement:
    """Decisions of one rank's clock and of every rank's signals, taken by all at the same update.

    About every `_AGREED_EVERY_S`, by a step's time on the first rank, and at the end of an epoch.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._num_updates, self._num_left = 0, 1
        self._agreed_at = time.monotonic()

    def reach(
        self, is_due: bool, signal_number: int | None, *, at_once: bool
    ) -> tuple[bool, int | None]:
        """The agreed ones: True where the first rank's save is due, and a signal; after an update.

        Between two agreements nothing is due.
        """
        if self._ranks.size == 1:
            return is_due, signal_number
        self._num_updates += 1
        self._num_left -= 1
        if self._num_left > 0 and not at_once:
            return False, None
        step_s = (time.monotonic() - self._agreed_at) / self._num_updates
        wanted = min(max(int(_AGREED_EVERY_S / max(step_s, 1e-9)), 1), _MAX_UPDATES)
        is_first = self._ranks.is_first
        mine = [is_due and is_first, signal_number or 0, wanted if is_first else 0]
        due, number, self._num_left = self._ranks.max_(torch.tensor(mine)).tolist()
        self._num_updates, self._agreed_at = 0, time.monotonic()
        return bool(due), number or None


def how_to_go_on(run_path: Path, ranks: Ranks) -> str:
    """The command that goes on with a training, by as many ranks."""
    command = resume_command(run_path)
    if ranks.size == 1:
        return command
    is_here = launch().local_size == ranks.size
    options = f"--nproc-per-node {ranks.size}" if is_here else "(its options)"
    return f"torchrun {options} -m -- {command}"


@contextmanager
def errors_say_how_to_go_on(run: Run, ranks: Ranks = ALONE) -> Iterator[None]:
    """Have errors name the files kept and the way to go on."""
    command = how_to_go_on(run.path, ranks)
    try:
        yield
    except RankError as error:
        raise RankError(f"{error}; go on with: {command}") from error
    except TrainingError as error:
        kept = "No epoch was evaluated before it, so no weights are kept"
        if run.has_weights:
            path = shlex.quote(str(run.path))
            kept = (
                f"The weights of the best epoch before it are kept: --from {path} starts from them"
            )
        raise TrainingError(f"{error}. {kept}") from error
    except RunError as error:
        raise RunError(f"{error}; once that is mended, go on with: {command}") from error
