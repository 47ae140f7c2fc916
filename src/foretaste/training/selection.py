"""Which epoch is the best, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretaste.training.resolve import TrainingPlan


@dataclass
class Selection:
    """Follows the selected metric from one evaluation to the next."""

    plan: TrainingPlan
    best_epoch: int = 0
    best_value: float | None = None
    target_epoch: int | None = None
    num_without_gain: int = 0

    def update(self, epoch: int, value: float) -> bool:
        """Take in an evaluation; True when it is the best so far (the first of equals)."""
        assert math.isfinite(value), f"{self.plan.select_by} is {value}"
        if self.target_epoch is None and self.plan.target is not None and value >= self.plan.target:
            self.target_epoch = epoch
        if self.best_value is not None and value <= self.best_value:
            self.num_without_gain += 1
            return False
        self.best_epoch, self.best_value, self.num_without_gain = epoch, value, 0
        return True

    def reason_to_stop(self) -> str | None:
        """Why training should end now, or None."""
        if self.target_epoch is not None:
            return f"{self.plan.select_by} reached {self.plan.target}"
        if 0 < self.plan.patience <= self.num_without_gain:
            return f"{self.plan.select_by} did not improve in {self.num_without_gain} evaluations"
        return None
