"""Saving and loading weights and state of a training; formats are in `runs/files.py`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from foretaste.models.base import RecommenderModel
from foretaste.runs.config import installed_versions
from foretaste.runs.files import SavedTensors
from foretaste.runs.run import Run
from foretaste.training.state import TrainingState
from foretaste.training.step import Step

LOSSES = "losses"
"""Name of the tensor of a saved state with the losses of the epoch's updates; all other tensors are
the step's."""


def hardware_of(device: torch.device) -> dict[str, Any]:
    """Return hardware that decides a training's last digits: the GPU, or the CPU's threads."""
    if device.type == "cuda":
        return {"gpu": torch.cuda.get_device_name(device)}
    return {"num_threads": torch.get_num_threads()}


@dataclass
class Checkpoints:
    """Saves and loads the training state of a run; saving is outside the training clock."""

    run: Run
    step: Step
    state: TrainingState
    hardware: Mapping[str, Any]
    """The current hardware, for the log."""
    _saved_at: float = field(default_factory=lambda: time.monotonic(), init=False)

    def is_due(self) -> bool:
        """Return True if the plan's time since the last save is over."""
        return time.monotonic() - self._saved_at >= self.state.plan.checkpoint_every_s

    def save(self) -> None:
        """Save the state as it is between two updates; TrainingError if it is not finite.

        The last saved state stays until it is replaced in one step.
        """
        state = self.state
        # Ranks update their shared parameters while the next batch is made: complete that update
        # first.
        self.step.finish()
        # A state that has diverged must not replace the good one on the disk.
        state.check_finite(self.step.model)  # sync
        with state.clock.paused():
            tensors = self.step.state_dict() | {LOSSES: state.losses()}
            self.write_state(tensors, state.position())
        self._saved_at = time.monotonic()

    def load(self) -> bool:
        """Resume from the saved state, and cut the log to its length then; False without a state.

        Raises RunError, with the run as it was, if the state is not whole, or the weights are
        missing or belong to another run.
        """
        saved = self.read_state()
        if saved is None:
            return False
        losses = saved.tensors.pop(LOSSES)
        self.step.load_state_dict(saved.tensors)
        self.state.resume_from(saved.note["position"], losses)
        # Open the weights only to find out now, and not after the last epoch, whether they are
        # whole.
        if self.state.early_stopping.best_epoch:
            self.read_weights(self.step.model)
        self.begin_log(saved)
        return True

    def write_state(self, tensors: Mapping[str, Tensor], position: Mapping[str, Any]) -> None:
        """Replace the saved state."""
        self.run.save_state(tensors, position)

    def read_state(self) -> SavedTensors | None:
        """Return the saved state; None if there is none."""
        return self.run.load_state()

    def begin_log(self, saved: SavedTensors) -> None:
        """Cut the log to its length at that time, and note the current conditions."""
        self.run.resume_from(
            saved,
            epoch=self.state.epoch,
            step=self.state.global_step,
            versions=installed_versions(),
            hardware=dict(self.hardware),
        )

    def write_weights(self, model: RecommenderModel, epoch: int | None) -> None:
        """Replace the best weights by a model's."""
        self.run.save_weights(model.state_dict(), epoch)

    def read_weights(self, model: RecommenderModel) -> dict[str, Tensor]:
        """Return the best weights, for a model."""
        return self.run.load_weights()
