"""A profile of a few steps, a file for trace viewers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.autograd.profiler import profile

from foretaste._util.files import atomic_file
from foretaste.training.callbacks import Callback, TrainingStart

TRACE = "trace.json"
"""Name of the trace within the run directory."""

NUM_STEPS = 3

NUM_SLOW_STEPS = 3
"""The first steps of a process take longer: memory is new, and nothing is recorded yet."""


class Profiler(Callback):
    """Callback that profiles three steps, once three are done or no more than three are left.

    The profile ends with the epoch in any case. The spans are data, forward, backward and step. A
    recorded CUDA graph has one span for forward, backward and step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._profile: profile | None = None
        self._num_seen = 0
        """Steps since the training began or resumed."""
        self._num_left = NUM_STEPS
        """Steps to profile."""

    def started(self, start: TrainingStart) -> None:
        assert start.plan is not None, "only trainings in steps are traced"
        self._epochs = start.plan.epochs
        if self._epochs * start.num_steps_per_epoch == 1:
            self._begin()

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self._num_seen += 1
        num_to_come = (self._epochs - epoch + 1) * num_steps_per_epoch - step
        if self._profile is not None:
            self._num_left -= 1
            if step == num_steps_per_epoch:
                self._num_left = 0
            if not self._num_left:
                found = self._profile
                self.close()
                with atomic_file(self.path) as temporary:
                    found.export_chrome_trace(str(temporary))  # type: ignore[no-untyped-call]
        elif self._num_left and (self._num_seen >= NUM_SLOW_STEPS or num_to_come <= NUM_STEPS):
            self._begin()

    def close(self) -> None:
        """End a running profile without writing it."""
        if self._profile is not None:
            self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._profile = None

    def _begin(self) -> None:
        # `torch.profiler` imports PyTorch's compiler, and its `schedule` crashed on a CPU.
        device = "cuda" if torch.cuda.is_available() else None
        self._profile = profile(use_device=device, use_kineto=True)
        self._profile.__enter__()  # type: ignore[no-untyped-call]
