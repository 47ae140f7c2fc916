"""Signals that ask this process to end, handed to a function instead."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Ctrl-C, the polite kill, and the terminal that is gone; Windows has no SIGHUP."""


class CaughtSignals:
    """Hands every ending signal to ``act`` while the block runs, or until it lets go of them.

    They are caught in the main thread alone: no other may. What the process was started to ignore
    stays ignored.
    """

    def __init__(self, act: Callable[[int], None]) -> None:
        self.last: int | None = None
        """The one that came last."""
        self._act = act
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        def catch(number: int, frame: FrameType | None) -> None:
            self.last = number
            self._act(number)

        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, catch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Have the signals do what they did before."""
        while self._previous:
            signal.signal(*self._previous.popitem())
