"""Saving and loading the state of a training; the format is in `runs/checkpoint_files.py`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from foretaste.errors import RunError
from foretaste.models.base import RecommenderModel
from foretaste.runs.checkpoint_files import STATE
from foretaste.runs.config import installed_versions
from foretaste.runs.run import Run
from foretaste.training.state import TrainingState
from foretaste.training.step import Step

_LOSSES = "losses"


def hardware_of(device: torch.device) -> dict[str, Any]:
    """Hardware that decides a training's last digits: the GPU, or the threads of a CPU's sums."""
    if device.type == "cuda":
        return {"gpu": torch.cuda.get_device_name(device)}
    return {"num_threads": torch.get_num_threads()}


def conditions(device: torch.device) -> dict[str, dict[str, Any]]:
    """Versions and hardware of here and now, as a log has them."""
    return {"versions": installed_versions(), "hardware": hardware_of(device)}


@dataclass
class Checkpoints:
    """Saves and loads the training state of a run; saving is outside the training clock."""

    run: Run
    step: Step
    state: TrainingState
    _saved_at: float = field(default_factory=lambda: time.monotonic(), init=False)

    def save_if_due(self) -> None:
        """Save where the last time is as long ago as the plan says."""
        if time.monotonic() - self._saved_at >= self.state.plan.checkpoint_every_s:
            self.save()

    def save(self) -> None:
        """Save the state as it is between two updates; TrainingError where it is not finite.

        What was saved before stays until it is replaced in one stroke.
        """
        state = self.state
        state.check_finite(self.step.model)  # sync
        with state.clock.standing():
            losses = {_LOSSES: state.losses()}
            tensors = whole_state(self.step.state_dict(), self.step.model)
            if tensors is not None:
                self.run.save_state(tensors | losses, state.position())
        self._saved_at = time.monotonic()

    def load(self) -> bool:
        """Go on from the saved state, the log cut to what it was then; False where there is none.

        Raises RunError, with the run as it was, where the state is not whole or does not fit, or
        the weights are not those of the log.
        """
        saved = self.run.load_state()
        if saved is None:
            return False
        try:
            losses = saved.tensors.pop(_LOSSES)
            self.step.load_state_dict(own_state(saved.tensors, self.step.model))
            self.state.go_on_from(saved.position, losses)
        except (KeyError, TypeError, RuntimeError) as error:
            raise RunError(
                f"{self.run.path / STATE} does not fit {self.run.config.model}: {error}. "
                "It was saved by another version of foretaste; remove it to begin anew"
            ) from error
        ranks = self.step.ranks
        ranks.any(False)  # all have read the log before it is cut
        if ranks.is_first:
            self.run.go_on_from(
                saved,
                epoch=self.state.epoch,
                step=self.state.global_step,
                **conditions(self.step.model.device),
            )
        return True


def whole_state(state: Mapping[str, Tensor], model: RecommenderModel) -> dict[str, Tensor] | None:
    """A state with all rows of what is sharded, on the first rank; None on the others.

    The last part of a name, from the first parameter's name on, is that of a parameter.
    """
    ranks, whole = model.share.ranks, {}
    for name, tensor in state.items():
        if _rows_of(name, tensor, model) is not None:
            parts = ranks.to_first(tensor.detach().cpu())
            tensor = torch.cat(parts) if parts else tensor
        whole[name] = tensor
    return whole if ranks.is_first else None


def own_state(state: Mapping[str, Tensor], model: RecommenderModel) -> dict[str, Tensor]:
    """The rows of a whole state that this rank has."""
    own = {}
    for name, tensor in state.items():
        rows = _rows_of(name, tensor, model)
        own[name] = tensor if rows is None else tensor[rows.start : rows.stop]
    return own


def _rows_of(name: str, tensor: Tensor, model: RecommenderModel) -> range | None:
    """The rows here of an entry of a state, which is of a parameter or of its optimizer."""
    if tensor.dim() == 0:
        return None
    for prefix in ("model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."):
        name = name.removeprefix(prefix)
    return model.rows_of(name)
