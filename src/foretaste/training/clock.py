"""How long a training took, and for what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from foretaste.evaluation.result import Evaluation


@dataclass
class Clock:
    """Seconds of compiling, per epoch and in evaluation, and what was evaluated in them."""

    compile_s: float = 0.0
    epoch_s: list[float] = field(default_factory=list)
    """Of the epochs that are over."""
    running_s: float = 0.0
    """Of the epoch under way, while the clock stands."""
    evaluate_s: dict[str, float] = field(default_factory=dict)
    """Of each evaluation: of an epoch by its number, and of the test part."""
    num_evaluated_users: int = 0
    num_evaluated_samples: int = 0
    cold_epochs: list[int] = field(default_factory=list)
    """Those in which kernels were compiled and the step was recorded, counted from 1."""

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

    def counted(self, evaluation: Evaluation, epoch: int | None) -> Evaluation:
        """The evaluation of an epoch or, at the end, of the test part, taken in."""
        self.evaluate_s["test" if epoch is None else str(epoch)] = evaluation.elapsed_s
        self.num_evaluated_users += evaluation.num_users
        self.num_evaluated_samples += evaluation.num_samples
        return evaluation

    def averaged_epochs(self, num_warm_up: int) -> list[int]:
        """The epochs, counted from 1, that averages are of: neither cold nor among the first
        ``num_warm_up``; the last where there are no such."""
        last = len(self.epoch_s)
        warm = [
            epoch for epoch in range(num_warm_up + 1, last + 1) if epoch not in self.cold_epochs
        ]
        return warm or [last]

    def averaged_s(self, epochs: list[int]) -> list[float]:
        """Seconds of training in these epochs."""
        return [self.epoch_s[epoch - 1] for epoch in epochs]

    def averaged_evaluate_s(self, epochs: list[int]) -> list[float]:
        """Seconds of evaluating them; of all evaluations of epochs where none of these had one."""
        found = [self.evaluate_s[str(epoch)] for epoch in epochs if str(epoch) in self.evaluate_s]
        return found or [seconds for name, seconds in self.evaluate_s.items() if name != "test"]

    def until(self, epoch: int) -> float:
        """Seconds from the start to the end of an epoch's evaluation: compiling, training and
        evaluating."""
        epochs = range(1, epoch + 1)
        evaluate_s = sum(self.evaluate_s.get(str(epoch), 0.0) for epoch in epochs)
        return self.compile_s + sum(self.epoch_s[:epoch]) + evaluate_s
