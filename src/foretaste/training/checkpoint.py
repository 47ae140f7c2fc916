"""Saving and loading the state of a training; the format is in `runs/checkpoint_files.py`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from foretaste.errors import RunError
from foretaste.ops.ranks import ALONE, Ranks
from foretaste.runs.checkpoint_files import STATE, OwnRows
from foretaste.runs.config import installed_versions
from foretaste.runs.run import Run
from foretaste.training.state import TrainingState
from foretaste.training.step import Step

_LOSSES = "losses"


def hardware_of(device: torch.device, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Hardware that decides a training's last digits: the GPU, or the threads of a CPU's sums.

    And the number of ranks, where there are several.
    """
    if device.type == "cuda":
        hardware: dict[str, Any] = {"gpu": torch.cuda.get_device_name(device)}
    else:
        hardware = {"num_threads": torch.get_num_threads()}
    return hardware | ({"num_ranks": ranks.size} if ranks.size > 1 else {})


def conditions(device: torch.device, ranks: Ranks = ALONE) -> dict[str, dict[str, Any]]:
    """Versions and hardware of here and now, as a log has them."""
    return {"versions": installed_versions(), "hardware": hardware_of(device, ranks)}


@dataclass
class Checkpoints:
    """Saves and loads the training state of a run; saving is outside the training clock."""

    run: Run
    step: Step
    state: TrainingState
    _saved_at: float = field(default_factory=lambda: time.monotonic(), init=False)

    def is_due(self) -> bool:
        """True where the last save is as long ago as the plan says."""
        return time.monotonic() - self._saved_at >= self.state.plan.checkpoint_every_s

    def save(self) -> None:
        """Save the state as it is between two updates; TrainingError where it is not finite.

        What was saved before stays until it is replaced in one stroke.
        """
        state = self.state
        self.step.finish()
        state.check_finite(self.step.model)  # sync
        with state.clock.standing():
            tensors = self.step.state_dict() | {_LOSSES: state.losses()}
            self.run.save_state(tensors, state.position(), self._own_rows())
            self.step.ranks.wait_for_first()
        self._saved_at = time.monotonic()

    def load(self) -> bool:
        """Go on from the saved state, the log cut to what it was then; False where there is none.

        Raises RunError, with the run as it was, where the state is not whole or does not fit, or
        the weights are missing or those of another run.
        """
        saved = self.run.load_state(self._own_rows())
        if saved is None:
            return False
        try:
            losses = saved.tensors.pop(_LOSSES)
            self.step.load_state_dict(saved.tensors)
            self.state.go_on_from(saved.position, losses)
        except (KeyError, TypeError, RuntimeError) as error:
            raise RunError(
                f"{self.run.path / STATE} does not fit {self.run.config.model}: {error}. "
                "It was saved by another version of foretaste; remove it to begin anew"
            ) from error
        if self.state.early_stopping.best_epoch:
            self.run.open_weights(OwnRows.of_model(self.step.model))
        if self.step.ranks.is_first:
            self.run.go_on_from(
                saved,
                epoch=self.state.epoch,
                step=self.state.global_step,
                **conditions(self.step.model.device, self.step.ranks),
            )
        return True

    def _own_rows(self) -> OwnRows:
        return OwnRows(self.step.ranks, self.step.rows_of)
