"""State of a training between two updates: all but weights, optimizer and scaler.

Shape suffix: S updates of an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from foretaste.errors import TrainingError
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import IterativeModel, SweepModel
from foretaste.training.auto import TrainingPlan
from foretaste.training.callbacks import EpochReport
from foretaste.training.early_stopping import EarlyStopping


@dataclass
class Clock:
    """Seconds of compiling, of each epoch and of evaluation, and the users evaluated."""

    compile_s: float = 0.0
    epoch_s: list[float] = field(default_factory=list)
    """Seconds of the finished epochs."""
    running_s: float = 0.0
    """Seconds of the current epoch, while the clock is paused."""
    evaluate_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each evaluation: of an epoch by its number, and of the test part."""
    num_evaluated_users: int = 0
    num_evaluated_samples: int = 0
    cold_epochs: list[int] = field(default_factory=list)
    """Epochs in which kernels were compiled and the step was recorded, counted from 1."""

    _going_since: float | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the current epoch, or continue it after a pause."""
        self._going_since = time.perf_counter()

    def stop(self) -> None:
        """Stop the clock: evaluation and files are not training. The device must be idle."""
        if self._going_since is not None:
            self.running_s += time.perf_counter() - self._going_since
            self._going_since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the clock while the block runs."""
        was_going = self._going_since is not None
        self.stop()
        yield
        if was_going:
            self.start()

    def next_epoch(self) -> None:
        """End the current epoch."""
        self.epoch_s.append(self.running_s)
        self.running_s = 0.0

    def add_evaluation(self, evaluation: Evaluation, epoch: int | None) -> Evaluation:
        """Count the evaluation of an epoch or, at the end, of the test part; returns it."""
        self.evaluate_s["test" if epoch is None else str(epoch)] = evaluation.elapsed_s
        self.num_evaluated_users += evaluation.num_users
        self.num_evaluated_samples += evaluation.num_samples
        return evaluation

    def times(self, num_samples: int, num_warm_up: int) -> dict[str, Any]:
        """Return a `TrainingSummary`'s entries about time; an epoch has ``num_samples``."""
        averaged = self.averaged_epochs(num_warm_up)
        epoch_s = [self.epoch_s[epoch - 1] for epoch in averaged]
        evaluation_s = [
            self.evaluate_s[str(epoch)] for epoch in averaged if str(epoch) in self.evaluate_s
        ]
        if not evaluation_s:
            evaluation_s = [s for name, s in self.evaluate_s.items() if name != "test"]
        evaluate_s = max(sum(self.evaluate_s.values()), 1e-9)
        return {
            "num_epochs": len(self.epoch_s),
            "num_warm_up_epochs": len(self.epoch_s) - len(averaged),
            "min_epoch_s": min(epoch_s),
            "avg_epoch_s": fmean(epoch_s),
            "min_evaluation_s": min(evaluation_s, default=None),
            "avg_evaluation_s": fmean(evaluation_s) if evaluation_s else None,
            "train_s": sum(self.epoch_s),
            "compile_s": self.compile_s,
            "samples_per_s": num_samples / fmean(epoch_s),
            "evaluated_users_per_s": self.num_evaluated_users / evaluate_s,
            "evaluated_samples_per_s": self.num_evaluated_samples / evaluate_s,
        }

    def averaged_epochs(self, num_warm_up: int) -> list[int]:
        """Return the epochs (from 1) that averages cover. They are neither cold nor among the first
        ``num_warm_up``; if no epoch is left, the last one is taken.
        """
        last = len(self.epoch_s)
        warm = [
            epoch for epoch in range(num_warm_up + 1, last + 1) if epoch not in self.cold_epochs
        ]
        return warm or [last]

    def elapsed_until(self, epoch: int) -> float:
        """Return the seconds until an epoch's evaluation ends: compiling, training, evaluating."""
        epochs = range(1, epoch + 1)
        evaluate_s = sum(self.evaluate_s.get(str(epoch), 0.0) for epoch in epochs)
        return self.compile_s + sum(self.epoch_s[:epoch]) + evaluate_s


@dataclass
class TrainingState:
    """The position within a training, what it has found so far, and how long that took."""

    plan: TrainingPlan
    num_samples: int
    """Samples in an epoch."""
    loss_S: Tensor
    """The summed loss of each update of this epoch, up to ``num_done``, of this rank's samples; on
    the device. In float64 the sum of a few float32 numbers is exact unless their exponents lie far
    apart (29 bits, less the log of their number). So any order of ranks gives the same sum."""
    early_stopping: EarlyStopping
    total: Callable[[Tensor], Tensor] = torch.clone
    """Sums a tensor over all processes that train together."""
    clock: Clock = field(default_factory=Clock)
    epoch: int = 1
    """The current epoch, from 1; one more than the plan's number when all are done."""
    num_done: int = 0
    """Updates done in it."""

    @classmethod
    def begin(
        cls,
        plan: TrainingPlan,
        *,
        num_steps_per_epoch: int,
        num_samples: int,
        device: torch.device,
        total: Callable[[Tensor], Tensor] = torch.clone,
    ) -> TrainingState:
        """Before the first update."""
        loss_S = torch.zeros(num_steps_per_epoch, dtype=torch.float64, device=device)
        return cls(plan, num_samples, loss_S, EarlyStopping(plan), total)

    @property
    def num_steps_per_epoch(self) -> int:
        """Updates in an epoch."""
        return len(self.loss_S)

    def count(self, loss: Tensor, num_samples: int) -> None:
        """Count an update and the mean loss of its samples; does not wait for the device."""
        # The mean is multiplied by the batch's samples, because the last batch may be shorter.
        torch.mul(loss, num_samples, out=self.loss_S[self.num_done])
        self.num_done += 1

    def next_epoch(self) -> None:
        """Move on to the next epoch, after the evaluation of this one."""
        self.clock.next_epoch()
        self.epoch += 1
        self.num_done = 0

    def reason_to_stop(self) -> str | None:
        """Return why training is over, or None."""
        if reason := self.early_stopping.reason_to_stop():
            return reason
        if self.epoch > self.plan.epochs:
            epochs = self.plan.epochs
            return "the only epoch is done" if epochs == 1 else f"all {epochs} epochs are done"
        return None

    def mean_loss(self) -> float:
        """Return the mean loss of this epoch's samples; waits for the device."""
        return self.losses().sum().item() / self.num_samples  # sync

    def losses(self) -> Tensor:
        """Return the summed loss of each update of this epoch so far."""
        return self.total(self.loss_S[: self.num_done])

    def check_finite(self, model: IterativeModel) -> None:
        """Raise TrainingError if this epoch's loss or a weight is not finite; wait for the device.

        The message names the first update whose loss is not finite.
        """
        # Ranks sum both the losses and the count of bad weights: all raise, or none.
        loss_S = self.losses()
        is_finite_S = loss_S.isfinite()
        if not bool(is_finite_S.all()):
            # `argmin` gives the first of equal values: the first update that is not finite.
            first = int(is_finite_S.long().argmin())
            raise self._divergence_error(
                f"the loss became {loss_S[first].item()}", first + 1, model
            )
        # The minimum and maximum of a tensor show whether anything in it is infinite or nan,
        # without a copy. `aminmax` of an empty tensor is an error.
        ends = [torch.stack(weight.aminmax()) for weight in model.parameters() if weight.numel()]
        num_bad = (~torch.cat(ends).isfinite()).count_nonzero()
        if bool(self.total(num_bad)):
            raise self._divergence_error("the weights became infinite or nan", self.num_done, model)

    def where(self) -> str:
        """Return the position, for people."""
        return f"epoch {self.epoch}, step {self.num_done} of {self.num_steps_per_epoch}"

    def describe_progress(self) -> str:
        """Return the updates before that position, for people, from the first update."""
        if self.num_done == 0:
            return f"after epoch {self.epoch - 1}"
        return f"in epoch {self.epoch}, after step {self.num_done} of {self.num_steps_per_epoch}"

    @property
    def global_step(self) -> int:
        """Updates since the start."""
        return (self.epoch - 1) * self.num_steps_per_epoch + self.num_done

    def report(
        self,
        loss: float,
        settings: dict[str, float],
        evaluation: Evaluation | None,
        *,
        is_best: bool,
    ) -> EpochReport:
        """Report of the epoch whose updates are done."""
        return EpochReport(
            epoch=self.epoch,
            step=self.global_step,
            loss=loss,
            train_s=self.clock.running_s,
            samples_per_s=self.num_samples / self.clock.running_s,
            settings=settings,
            evaluation=evaluation,
            is_best=is_best,
        )

    def position(self) -> dict[str, Any]:
        """Return the state without the losses, as JSON values."""
        return {
            "epoch": self.epoch,
            "num_done": self.num_done,
            "selection": _values(self.early_stopping, _EARLY_STOPPING),
            "clock": _values(self.clock, _CLOCK),
        }

    def resume_from(self, position: Mapping[str, Any], loss_S: Tensor) -> None:
        """Take over a `position`, and the losses of its epoch so far."""
        self.epoch, self.num_done = position["epoch"], position["num_done"]
        self.early_stopping = EarlyStopping(self.plan, **position["selection"])
        self.clock = Clock(**position["clock"])
        self.loss_S[: self.num_done] = loss_S

    def _divergence_error(self, what: str, step: int, model: IterativeModel) -> TrainingError:
        advice = "raise --regularization"
        if not isinstance(model, SweepModel):
            advice = f"lower --learning-rate (now {self.plan.learning_rate:g})"
        where = f"epoch {self.epoch}, step {step} of {self.num_steps_per_epoch}"
        return TrainingError(f"{what} in {where}; {advice}")


_EARLY_STOPPING = tuple(entry.name for entry in fields(EarlyStopping) if entry.name != "plan")
_CLOCK = tuple(entry.name for entry in fields(Clock) if entry.init)


def _values(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}
