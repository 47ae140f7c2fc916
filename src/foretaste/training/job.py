"""One training into its run directory: fit, log, keep the best weights, final numbers."""

from __future__ import annotations

import resource
import sys
import time
from functools import partial

import torch

from foretaste.evaluation.result import Evaluation
from foretaste.models.base import ClosedFormModel, NeuralModel, RecommenderModel
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.run import Run
from foretaste.training.batches import Batches
from foretaste.training.judging import Judging
from foretaste.training.loop import Clock, fit
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.progress import EpochReport, TrainingStart, TrainingSummary
from foretaste.training.resolve import TrainingPlan
from foretaste.training.selection import Selection
from foretaste.training.step import Step


def train_neural(
    run: Run,
    model: NeuralModel,
    batches: Batches,
    plan: TrainingPlan,
    precision: PrecisionPolicy,
    judging: Judging,
) -> None:
    """Train by gradient steps; the run ends up with the best epoch's weights."""
    step = prepared_step(model, plan, precision)
    _announce(run, model, judging, plan, batches.num_samples, batches.num_batches)
    evaluate = None
    if judging.selection_split is not None:
        evaluate = partial(judging.select, model, plan.select_by)
    selection, clock, reason = fit(
        step,
        batches,
        plan,
        evaluate=evaluate,
        keep=lambda: run.save_weights(model.state_dict()),
        report=partial(_report, run, judging),
        progress=judging.progress,
    )
    model.load_state_dict(run.load_weights())
    _finish(run, model, judging, clock, batches.num_samples, plan.select_by, selection, reason)


def prepared_step(model: NeuralModel, plan: TrainingPlan, precision: PrecisionPolicy) -> Step:
    """Give ``model`` its first weights and the dtype of its products; returns how it learns."""
    model.reset_parameters(plan.seed)
    model.compute_dtype = precision.compute_dtype
    return Step(model, adam(model, plan), precision)


def adam(model: torch.nn.Module, plan: TrainingPlan) -> torch.optim.Optimizer:
    """The optimizer of a plan: Adam over every parameter, each step in one fused pass."""
    return torch.optim.Adam(
        [parameter for parameter in model.parameters() if parameter.numel()],
        lr=plan.learning_rate,
        betas=(plan.beta1, plan.beta2),
        eps=plan.eps,
        fused=True,
    )


def train_closed_form(
    run: Run, model: ClosedFormModel, histories: HistoryTensors, judging: Judging
) -> None:
    """Fit in one pass."""
    _announce(run, model, judging, None, len(histories), 1)
    started = time.perf_counter()
    model.fit(histories)
    clock = Clock(epoch_s=[time.perf_counter() - started])
    run.save_weights(model.state_dict())
    _finish(run, model, judging, clock, len(histories), None, None, "fitted in one pass")


def _announce(
    run: Run,
    model: RecommenderModel,
    judging: Judging,
    plan: TrainingPlan | None,
    num_samples: int,
    num_batches: int,
) -> None:
    manifest = judging.dataset.manifest
    start = TrainingStart(
        model=model.name,
        dataset=str(judging.dataset.path),
        protocol=manifest.protocol,
        plan=plan,
        num_users=manifest.num_train_users,
        num_items=manifest.num_items,
        num_interactions=judging.dataset.train.num_interactions,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_samples=num_samples,
        num_batches=num_batches,
        selection_split=judging.selection_split,
    )
    run.log.append(
        "start",
        num_users=start.num_users,
        num_items=start.num_items,
        num_interactions=start.num_interactions,
        num_parameters=start.num_parameters,
        num_samples=num_samples,
        num_steps=num_batches,
    )
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
    judging.progress.started(start)


def _report(run: Run, judging: Judging, report: EpochReport) -> None:
    run.log.append(
        "epoch",
        epoch=report.epoch,
        step=report.step,
        loss=report.loss,
        train_s=report.train_s,
        samples_per_s=report.samples_per_s,
        **report.settings,
    )
    if report.evaluation is not None:
        _log_evaluation(run, report.evaluation, report.epoch)
    judging.progress.epoch_done(report)


def _log_evaluation(run: Run, evaluation: Evaluation, epoch: int | None) -> None:
    run.log.append("evaluation", epoch=epoch, evaluation=evaluation.as_dict())


def _finish(
    run: Run,
    model: RecommenderModel,
    judging: Judging,
    clock: Clock,
    num_samples: int,
    select_by: str | None,
    selection: Selection | None,
    reason: str,
) -> None:
    """Judge the best weights on the test part, log and report what the training came to."""
    model.eval()
    test = judging.test(model)
    if test is not None:
        clock.counted(test)
        _log_evaluation(run, test, selection.best_epoch if selection else None)
    train_s = sum(clock.epoch_s)
    summary = TrainingSummary(
        num_epochs=len(clock.epoch_s),
        stopped_because=reason,
        min_epoch_s=min(clock.epoch_s),
        avg_epoch_s=train_s / len(clock.epoch_s),
        train_s=train_s,
        samples_per_s=num_samples * len(clock.epoch_s) / train_s,
        evaluated_users_per_s=clock.num_evaluated / max(clock.evaluate_s, 1e-9),
        select_by=select_by,
        selection_split=judging.selection_split if selection else None,
        best_epoch=selection.best_epoch if selection else None,
        best_value=selection.best_value if selection else None,
        target_epoch=selection.target_epoch if selection else None,
        memory_mib=_peak_memory_mib(model.device),
        test=test,
    )
    run.log.append("summary", **summary.as_event())
    judging.progress.finished(summary)


def _peak_memory_mib(device: torch.device) -> float:
    """Peak memory of this process, or of the GPU's allocator."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
