"""The state of a training on disk: saved as it goes on, found again when it is resumed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from foretaste.errors import RunError
from foretaste.runs.checkpoint_files import STATE
from foretaste.runs.run import Run
from foretaste.training.reporting import conditions
from foretaste.training.state import TrainingState
from foretaste.training.step import Step

_LOSSES = "losses"


@dataclass
class Checkpoints:
    """Keeps the training state of a run on disk; saving stands outside the training clock."""

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
            losses = {_LOSSES: state.loss_S[: state.num_done].clone()}
            self.run.save_state(self.step.state_dict() | losses, state.position())
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
            self.step.load_state_dict(saved.tensors)
            self.state.go_on_from(saved.position, losses)
        except (KeyError, TypeError, RuntimeError) as error:
            raise RunError(
                f"{self.run.path / STATE} does not fit {self.run.config.model}: {error}. "
                "It was saved by another version of foretaste; remove it to begin anew"
            ) from error
        self.run.go_on_from(
            saved,
            epoch=self.state.epoch,
            step=self.state.num_steps(),
            **conditions(self.step.model.device),
        )
        return True
