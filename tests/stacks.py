"""Stacks of children at a limit: the children are aborted, and `faulthandler`, which is on in each,
writes every thread's stack to stderr."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess

END_S = 10.0


def abort(children: Iterable[BaseProcess]) -> None:
    """Abort the children that still run, with their stacks."""
    alive = [child for child in children if child.is_alive()]
    for child in alive:
        assert child.pid is not None
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGABRT)
    for child in alive:
        child.join(END_S)
