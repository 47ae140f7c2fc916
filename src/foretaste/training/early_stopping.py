"""Early stopping: the best epoch so far, and the reason to end a training."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretaste.training.auto import TrainingPlan


@dataclass
class EarlyStopping:
    """Best epoch by the selected metric, and the reason to stop.

    If no epoch is evaluated, the last one is the best.
    """

    plan: TrainingPlan
    # The fields below are keys of a saved state: another name needs another format of runs.
    best_epoch: int = 0
    best_value: float | None = None
    target_epoch: int | None = None
    num_without_gain: int = 0

    def update(self, epoch: int, value: float | None) -> bool:
        """Count an epoch and its evaluation's value, if any; return whether it is the best.

        The first of equal values is the best.
        """
        if value is None:
            if epoch == self.plan.epochs:
                self.best_epoch = epoch
            return epoch == self.plan.epochs
        assert math.isfinite(value), f"{self.plan.select_by} is {value}"
        if self.target_epoch is None and self.plan.target is not None and value >= self.plan.target:
            self.target_epoch = epoch
        if self.best_value is not None and value <= self.best_value:
            self.num_without_gain += 1
            return False
        self.best_epoch, self.best_value, self.num_without_gain = epoch, value, 0
        return True

    def reason_to_stop(self) -> str | None:
        """Return why training should end now, or None."""
        if self.target_epoch is not None:
            return f"{self.plan.select_by} reached {self.plan.target}"
        if 0 < self.plan.patience <= self.num_without_gain:
            return f"{self.plan.select_by} did not improve in {self.num_without_gain} evaluations"
        return None
