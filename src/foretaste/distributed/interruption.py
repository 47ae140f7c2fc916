"""Signals that come to some of the ranks: all end their training after the same update."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch

from foretaste._util.system import ENDING, launch
from foretaste.distributed.collectives import Ranks
from foretaste.training.interruption import Interruption

# Approximate seconds between two agreements. A signal waits about as long.
_AGREED_EVERY_S = 0.2
_MAX_UPDATES = 1000
"""Most updates between two agreements."""

_SAME_SIGNAL_S = 2.0
"""A second signal within this time is the same one: a scheduler may signal both torchrun, which
passes it on, and the ranks."""


class SharedInterruption(Interruption):
    """Makes all ranks stop or save at the same update, by any rank's signal or the first's clock.

    An agreement is a collective, so it is not made at every update. The first rank's time of a step
    decides after how many, about every `_AGREED_EVERY_S`; each epoch ends with one.
    """

    def __init__(self, ranks: Ranks, run_path: Path) -> None:
        super().__init__(run_path)
        is_here = launch().local_size == ranks.size
        options = f"--nproc-per-node {ranks.size}" if is_here else "(its options)"
        self.command = f"torchrun {options} -m -- {self.command}"
        self._ranks = ranks
        self._came_at: float | None = None
        self._num_updates, self._num_left = 0, 1
        self._agreed_at = time.monotonic()

    def note(self, number: int) -> None:
        now = time.monotonic()
        if self._came_at is None:
            self._came_at = now
        elif now - self._came_at > _SAME_SIGNAL_S:
            for ending in ENDING:
                signal.signal(ending, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def check(self, where: str) -> None:
        """Do nothing: ranks stop between updates only, in `poll`."""

    def poll(self, is_due: bool, *, at_once: bool) -> tuple[bool, int | None]:
        """Return what the ranks agreed: whether the first one's save is due, and any rank's signal.

        Between two agreements nothing is due.
        """
        self._num_updates += 1
        self._num_left -= 1
        if self._num_left > 0 and not at_once:
            return False, None
        step_s = (time.monotonic() - self._agreed_at) / self._num_updates
        wanted = min(max(int(_AGREED_EVERY_S / max(step_s, 1e-9)), 1), _MAX_UPDATES)
        # One collective for all three. Only the signal of ranks that are not the first counts:
        # their clocks differ, and the count to the next agreement must be equal on all.
        is_first = self._ranks.is_first
        mine = [is_due and is_first, self.last or 0, wanted if is_first else 0]
        due, number, self._num_left = self._ranks.max_(torch.tensor(mine)).tolist()
        self._num_updates, self._agreed_at = 0, time.monotonic()
        return bool(due), number or None
