"""A profile of a few steps and a few batches of ranking, as a file that trace viewers open."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from foretaste._util.atomic import atomic_file
from foretaste.ops.spans import named_spans
from foretaste.training.callbacks import Callback, EpochReport, TrainingStart

TRACE = "trace.json"
"""Within the run directory."""

NUM_STEPS = 3
NUM_RANKING_BATCHES = 3

NUM_SLOW_STEPS = 3
"""The first of a process take longer than those that follow: memory is new, nothing recorded."""

_SILENCE = ("KINETO_LOG_LEVEL", "6")
"""Set in the environment before the first profile, it keeps PyTorch's profiler from saying on
stderr that it starts and stops. Its errors have a lower level, so they are silenced too."""


class Profiler(Callback):
    """Callback that profiles the first steps of the second epoch, and the ranking that follows.

    If only one epoch is left, steps of that epoch are profiled; its first three are left out if
    more follow. The spans are data, forward, backward and step, and evaluate for each batch of
    ranking. A recorded CUDA graph has one span for forward, backward and step. Both profiles have
    the same clock, so they become one file in Chrome's trace event format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trace: dict[str, Any] = {}
        self._profiled = ExitStack()
        self._num_left = 0
        """Steps or batches until the profile under way ends; 0 while there is none."""
        self._num_seen = 0
        """Steps since the training began or went on."""
        self._has_steps = False
        self._has_ranking = False
        """Ranking was profiled, or none will happen."""

    def started(self, start: TrainingStart) -> None:
        assert start.plan is not None, "only trainings in steps are traced"
        self._plan = start.plan
        self._has_ranking = start.selection_split is None
        if start.plan.epochs * start.num_steps_per_epoch == 1:
            self._begin(NUM_STEPS)

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        is_last, is_last_epoch = step == num_steps_per_epoch, epoch == self._plan.epochs
        self._num_seen += 1
        is_warm = self._num_seen >= NUM_SLOW_STEPS or num_steps_per_epoch - step <= NUM_STEPS
        if self._num_left:
            self._has_steps = True
            self._count(ends=is_last)
        elif is_last_epoch and not (self._has_steps or is_last) and is_warm:
            self._begin(NUM_STEPS)
        ranking_follows = is_last and self._plan.evaluates(epoch)
        if ranking_follows and (self._has_steps or is_last_epoch) and not self._has_ranking:
            self._begin(NUM_RANKING_BATCHES)

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        if self._num_left:
            self._has_ranking = True
            self._count(ends=num_done == num_users)

    def epoch_done(self, report: EpochReport) -> None:
        self.close()
        if not self._has_steps and report.epoch < self._plan.epochs:
            self._begin(NUM_STEPS)

    def close(self) -> None:
        """End a profile that is under way, without writing it."""
        self._num_left = 0
        self._profiled.close()

    def _begin(self, num_calls: int) -> None:
        os.environ.setdefault(*_SILENCE)
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiled.enter_context(named_spans())
        self._profile = self._profiled.enter_context(
            profile(activities=activities, acc_events=True)
        )
        self._num_left = num_calls

    def _count(self, *, ends: bool) -> None:
        self._num_left -= 1
        if ends or not self._num_left:
            self.close()
            with atomic_file(self.path) as temporary:  # with what an earlier profile left there
                self._profile.export_chrome_trace(str(temporary))
                found = json.loads(temporary.read_text(encoding="utf-8"))
                found["traceEvents"] = self._trace.get("traceEvents", []) + found["traceEvents"]
                self._trace = found
                temporary.write_text(json.dumps(found), encoding="utf-8")
