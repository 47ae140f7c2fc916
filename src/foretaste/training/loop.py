"""The one training loop of all neural models, on any device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from foretaste.errors import TrainingError
from foretaste.evaluation.result import Evaluation
from foretaste.training.batches import Batches
from foretaste.training.progress import EpochReport, Progress
from foretaste.training.resolve import TrainingPlan
from foretaste.training.selection import Selection
from foretaste.training.step import Step


@dataclass
class Clock:
    """Seconds per epoch and in evaluation, and users evaluated."""

    epoch_s: list[float] = field(default_factory=list)
    evaluate_s: float = 0.0
    num_evaluated: int = 0

    def counted(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation, its time and users added up."""
        self.evaluate_s += evaluation.elapsed_s
        self.num_evaluated += evaluation.num_users
        return evaluation

    def report(
        self,
        epoch: int,
        loss: float,
        batches: Batches,
        settings: dict[str, float],
        evaluation: Evaluation | None,
        is_best: bool,
    ) -> EpochReport:
        """What there is to tell of the epoch that was timed last."""
        return EpochReport(
            epoch=epoch,
            step=epoch * batches.num_batches,
            loss=loss,
            train_s=self.epoch_s[-1],
            samples_per_s=batches.num_samples / self.epoch_s[-1],
            settings=settings,
            evaluation=evaluation,
            is_best=is_best,
        )


def fit(
    step: Step,
    batches: Batches,
    plan: TrainingPlan,
    *,
    evaluate: Callable[[], Evaluation] | None,
    keep: Callable[[], None],
    report: Callable[[EpochReport], None],
    progress: Progress,
) -> tuple[Selection, Clock, str]:
    """Train until the plan's epochs are done, patience runs out or the target is met.

    Args:
        step: the model to train, and how it learns from a batch.
        evaluate: ranks the held-out users; without it the last epoch is the best.
        keep: saves the weights, after every evaluation that is the best so far.
        report: told of every epoch.

    Returns what was selected, the times, and why training ended. Raises TrainingError for a loss
    that is not finite.
    """
    selection, clock, reason = Selection(plan), Clock(), None
    model, num_batches = step.model, batches.num_batches
    for epoch in range(1, plan.epochs + 1):
        started = time.perf_counter()
        model.train()
        loss_sum = torch.zeros((), device=model.device)
        for number, batch in enumerate(batches.epoch(epoch - 1), start=1):
            loss_sum += step(batch) * batch.num_samples
            progress.stepped(epoch, number, num_batches)
        epoch_loss = loss_sum.item() / batches.num_samples  # sync: the one of the epoch
        clock.epoch_s.append(time.perf_counter() - started)
        _check_finite(epoch_loss, epoch, plan)
        evaluation = None
        is_last = epoch == plan.epochs
        is_best = is_last and evaluate is None
        if evaluate is not None and (is_last or epoch % plan.eval_every == 0):
            model.eval()
            evaluation = clock.counted(evaluate())
            is_best = selection.update(epoch, evaluation[plan.select_by])
        if is_best:
            selection.best_epoch = epoch
            keep()
        settings = step.scaler.as_event() | model.schedule(epoch * num_batches, num_batches)
        report(clock.report(epoch, epoch_loss, batches, settings, evaluation, is_best))
        if reason := selection.reason_to_stop():
            break
    return selection, clock, reason or f"all {plan.epochs} epochs are done"


def _check_finite(loss: float, epoch: int, plan: TrainingPlan) -> None:
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss became {loss} in epoch {epoch}; lower --learning-rate "
            f"(now {plan.learning_rate:g})"
        )
