"""What a training tells its metrics log and whoever watches: start, epochs, final numbers."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from foretaste.evaluation.result import Evaluation
from foretaste.models.base import ClosedFormModel, RecommenderModel
from foretaste.runs.config import installed_versions
from foretaste.runs.run import Run
from foretaste.training.clock import Clock
from foretaste.training.hardware import deciding_hardware
from foretaste.training.judging import Judging
from foretaste.training.memory import peak_memory_mib
from foretaste.training.progress import EpochReport, TrainingStart, TrainingSummary
from foretaste.training.resolve import TrainingPlan
from foretaste.training.selection import Selection
from foretaste.training.state import TrainingState


def announce(
    run: Run,
    model: RecommenderModel,
    state: TrainingState,
    started_from: dict[str, Any],
    judging: Judging,
    *,
    begins_again: bool,
) -> None:
    """Tell of a training in steps that begins, the first time or for want of a saved state."""
    sizes = (state.num_batches, state.num_samples)
    where = "epoch 1: it had ended before a state was saved" if begins_again else None
    start = _training_start(
        model, judging, state.plan, *sizes, started_from=started_from, resumed_at=where
    )
    _announce(run, judging, start)


def announce_fit(run: Run, model: ClosedFormModel, num_samples: int, judging: Judging) -> None:
    """Tell of a training in one pass."""
    start = _training_start(model, judging, None, 1, num_samples)
    _announce(run, judging, replace(start, fitting=model.what_fitting_does()))


def announce_again(
    run: Run, model: RecommenderModel, state: TrainingState, judging: Judging
) -> None:
    """Tell of a training that goes on, which the log knows already."""
    where = state.where() + _remark_on_changes(run, model.device)
    sizes = (state.num_batches, state.num_samples)
    start = _training_start(model, judging, state.plan, *sizes, resumed_at=where)
    judging.progress.started(start)


def _announce(run: Run, judging: Judging, start: TrainingStart) -> None:
    run.log.append(
        "start",
        num_users=start.num_users,
        num_items=start.num_items,
        num_interactions=start.num_interactions,
        num_parameters=start.num_parameters,
        num_samples=start.num_samples,
        num_steps=start.num_batches,
        started_from=start.started_from,
    )
    judging.progress.started(start)


def conditions(device: torch.device) -> dict[str, dict[str, Any]]:
    """What decides the numbers of a training here and now, as a log has it."""
    return {"versions": installed_versions(), "hardware": deciding_hardware(device)}


def _remark_on_changes(run: Run, device: torch.device) -> str:
    """A remark where other versions or other hardware than here decided the numbers so far."""
    here = conditions(device)
    now = here["versions"] | here["hardware"]
    begun = {**run.config.versions, **run.config.hardware}
    changed = [f"{name} {value}" for name, value in begun.items() if value != now.get(name)]
    if not changed:
        return ""
    return f" (begun with {', '.join(changed)}: last digits may differ)"


def _training_start(
    model: RecommenderModel,
    judging: Judging,
    plan: TrainingPlan | None,
    num_batches: int,
    num_samples: int,
    *,
    started_from: dict[str, Any] | None = None,
    resumed_at: str | None = None,
) -> TrainingStart:
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
    manifest = judging.dataset.manifest
    return TrainingStart(
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
        started_from=started_from or {},
        resumed_at=resumed_at,
    )


def report_epoch(run: Run, judging: Judging, report: EpochReport) -> None:
    """Log and tell of an epoch, its evaluation too."""
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


def finish(
    run: Run,
    model: RecommenderModel,
    judging: Judging,
    clock: Clock,
    num_samples: int,
    selection: Selection | None,
    reason: str,
) -> None:
    """Judge the best weights on the test part, log and report what the training came to."""
    model.eval()
    test = judging.test(model, selection.plan.select_by if selection else None)
    if test is not None:
        clock.counted(test, None)
        _log_evaluation(run, test, selection.best_epoch if selection else None)
    averaged = clock.averaged_epochs(selection.plan.warm_up_epochs if selection else 0)
    epoch_s, evaluation_s = clock.averaged_s(averaged), clock.averaged_evaluate_s(averaged)
    evaluate_s = max(sum(clock.evaluate_s.values()), 1e-9)
    target_epoch = selection.target_epoch if selection else None
    summary = TrainingSummary(
        num_epochs=len(clock.epoch_s),
        stopped_because=reason,
        num_warm_up_epochs=len(clock.epoch_s) - len(averaged),
        min_epoch_s=min(epoch_s),
        avg_epoch_s=fmean(epoch_s),
        min_evaluation_s=min(evaluation_s, default=None),
        avg_evaluation_s=fmean(evaluation_s) if evaluation_s else None,
        train_s=sum(clock.epoch_s),
        compile_s=clock.compile_s,
        samples_per_s=num_samples / fmean(epoch_s),
        evaluated_users_per_s=clock.num_evaluated_users / evaluate_s,
        evaluated_samples_per_s=clock.num_evaluated_samples / evaluate_s,
        select_by=selection.plan.select_by if selection else None,
        selection_split=judging.selection_split if selection else None,
        best_epoch=selection.best_epoch if selection else None,
        best_value=selection.best_value if selection else None,
        target_epoch=target_epoch,
        target_s=None if target_epoch is None else clock.until(target_epoch),
        memory_mib=peak_memory_mib(model.device),
        test=test,
    )
    run.log.append("summary", **summary.as_event())
    run.discard_state()
    judging.progress.finished(summary)
