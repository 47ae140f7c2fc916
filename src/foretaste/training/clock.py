"""How long a training took, and for what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from foretaste.evaluation.result import Evaluation


@dataclass
class Clock:
    """Seconds of compiling, per epoch and in evaluation, and users evaluated."""

    compile_s: float = 0.0
    epoch_s: list[float] = field(default_factory=list)
    """Of the epochs that are over."""
    running_s: float = 0.0
    """Of the epoch under way, while the clock stands."""
    evaluate_s: float = 0.0
    num_evaluated: int = 0

    _going_since: float | None = field(default=None, init=False)

    def go(self) -> None:
        """Go on with the epoch under way."""
        self._going_since = time.perf_counter()

    def stop(self) -> None:
        """Stand still: evaluations and files are not training. What is queued must be done."""
        if self._going_since is not None:
            self.running_s += time.perf_counter() - self._going_since
            self._going_since = None

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stand still while the block runs."""
        was_going = self._going_since is not None
        self.stop()
        yield
        if was_going:
            self.go()

    def next_epoch(self) -> None:
        """The epoch under way is over."""
        self.epoch_s.append(self.running_s)
        self.running_s = 0.0

    def averaged_s(self, num_warm_up: int) -> list[float]:
        """Seconds of the epochs after the first ones; of the last where there are none after."""
        return self.epoch_s[min(num_warm_up, len(self.epoch_s) - 1) :]

    def counted(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation, its time and users added up."""
        self.evaluate_s += evaluation.elapsed_s
        self.num_evaluated += evaluation.num_users
        return evaluation
