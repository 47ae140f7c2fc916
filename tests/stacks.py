"""Stacks of children at a limit: they are aborted, and `faulthandler`, which is on in each, has
every thread's written to its stderr."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess

END_S = 10.0


def abort(children: Iterable[BaseProcess]) -> None:
    """End those that still run, with their stacks."""
    alive = [child for child in children if child.is_alive()]
    for child in alive:
        assert child.pid is not None
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGABRT)
    for child in alive:
        child.join(END_S)
