"""Ctrl-C and SIGTERM in a training: it ends where its state is whole."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from foretaste.errors import Interrupted
from foretaste.runs.paths import resume_command

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Signals are noted while the block runs, for whoever may stop there to `check`.

    They are caught in the main thread alone: no other may. A second one acts at once, as it would
    have without us. What the process was started to ignore stays ignored.
    """

    def __init__(self, run_path: Path) -> None:
        self.run_path = run_path
        self._previous: dict[int, Any] = {}
        self._caught: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._let_go()

    def check(self, where: str) -> None:
        """Raise `Interrupted` once a signal came; ``where`` says how far the training is."""
        if self._caught is not None:
            command = resume_command(self.run_path)
            raise Interrupted(f"interrupted {where}; go on with: {command}", self._caught)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._caught = number
        self._let_go()

    def _let_go(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())
