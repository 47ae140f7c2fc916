"""Where a training stands: everything about it but weights, optimizer and scaler.

Shape suffix: S updates of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from foretaste.errors import TrainingError
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import NeuralModel
from foretaste.training.clock import Clock
from foretaste.training.progress import EpochReport
from foretaste.training.resolve import TrainingPlan
from foretaste.training.selection import Selection


@dataclass
class TrainingState:
    """The position within a training, what it has found so far, and how long that took."""

    plan: TrainingPlan
    num_samples: int
    """Samples in an epoch."""
    loss_S: Tensor
    """On the device: the summed loss of each update of this epoch, up to ``num_done``."""
    selection: Selection
    clock: Clock = field(default_factory=Clock)
    epoch: int = 1
    """The epoch under way, counted from 1; one more than the plan's when all are done."""
    num_done: int = 0
    """Updates done in it."""

    @classmethod
    def begin(
        cls, plan: TrainingPlan, *, num_batches: int, num_samples: int, device: torch.device
    ) -> TrainingState:
        """Before the first update."""
        loss_S = torch.zeros(num_batches, device=device)
        return cls(plan, num_samples, loss_S, Selection(plan))

    @property
    def num_batches(self) -> int:
        """Updates in an epoch."""
        return len(self.loss_S)

    def count(self, loss: Tensor, num_samples: int) -> None:
        """Take in the mean loss of an update's samples; does not wait for the device."""
        torch.mul(loss, num_samples, out=self.loss_S[self.num_done])
        self.num_done += 1

    def next_epoch(self) -> None:
        """The epoch under way is over, its evaluation too."""
        self.clock.next_epoch()
        self.epoch += 1
        self.num_done = 0

    def reason_to_stop(self) -> str | None:
        """Why training is over, or None."""
        if reason := self.selection.reason_to_stop():
            return reason
        if self.epoch > self.plan.epochs:
            epochs = self.plan.epochs
            return "the only epoch is done" if epochs == 1 else f"all {epochs} epochs are done"
        return None

    def mean_loss(self) -> float:
        """Over this epoch's samples; waits for the device."""
        return self.loss_S[: self.num_done].sum(dtype=torch.float64).item() / self.num_samples

    def check_finite(self, model: NeuralModel) -> None:
        """TrainingError where a loss of this epoch or a weight is not finite; waits for the device.

        It names the first update whose loss is not.
        """
        loss_S = self.loss_S[: self.num_done]
        is_finite_S = loss_S.isfinite()
        if not bool(is_finite_S.all()):
            first = int(is_finite_S.long().argmin())
            raise self._diverged(f"the loss became {loss_S[first].item()}", first + 1)
        ends = [torch.stack(weight.aminmax()) for weight in model.parameters() if weight.numel()]
        if not bool(torch.cat(ends).isfinite().all()):
            raise self._diverged("the weights became infinite or nan", self.num_done)

    def where(self) -> str:
        """The position, for people."""
        return f"epoch {self.epoch}, step {self.num_done} of {self.num_batches}"

    def what_is_done(self) -> str:
        """What lies behind that position, for people; from the first update on."""
        if self.num_done == 0:
            return f"after epoch {self.epoch - 1}"
        return f"in epoch {self.epoch}, after step {self.num_done} of {self.num_batches}"

    def num_steps(self) -> int:
        """Updates since the start."""
        return (self.epoch - 1) * self.num_batches + self.num_done

    def report(
        self,
        loss: float,
        settings: dict[str, float],
        evaluation: Evaluation | None,
        *,
        is_best: bool,
    ) -> EpochReport:
        """What there is to tell of the epoch whose updates are done."""
        return EpochReport(
            epoch=self.epoch,
            step=self.num_steps(),
            loss=loss,
            train_s=self.clock.running_s,
            samples_per_s=self.num_samples / self.clock.running_s,
            settings=settings,
            evaluation=evaluation,
            is_best=is_best,
        )

    def position(self) -> dict[str, Any]:
        """All of it but the losses, as JSON values."""
        return {
            "epoch": self.epoch,
            "num_done": self.num_done,
            "selection": _values(self.selection, _SELECTION),
            "clock": _values(self.clock, _CLOCK),
        }

    def go_on_from(self, position: Mapping[str, Any], loss_S: Tensor) -> None:
        """Take over a `position`, and the losses of its epoch so far."""
        self.epoch, self.num_done = position["epoch"], position["num_done"]
        self.selection = Selection(self.plan, **position["selection"])
        self.clock = Clock(**position["clock"])
        self.loss_S[: self.num_done] = loss_S

    def _diverged(self, what: str, step: int) -> TrainingError:
        return TrainingError(
            f"{what} in epoch {self.epoch}, step {step} of {self.num_batches}; "
            f"lower --learning-rate (now {self.plan.learning_rate:g})"
        )


_SELECTION = tuple(entry.name for entry in fields(Selection) if entry.name != "plan")
_CLOCK = tuple(entry.name for entry in fields(Clock) if entry.init)


def _values(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}
