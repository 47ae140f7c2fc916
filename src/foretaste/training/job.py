"""One training into its run directory: fit, log, keep the best weights, final numbers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from foretaste.errors import Interrupted, RunError, TrainingError
from foretaste.models.base import ClosedFormModel, NeuralModel
from foretaste.models.neumf.config import SamplingConfig
from foretaste.ops.buffers import keep_freed_memory
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.run import Run
from foretaste.training.adam import Adam
from foretaste.training.batches import Batches, InteractionBatches
from foretaste.training.checkpoints import Checkpoints
from foretaste.training.clock import Clock
from foretaste.training.history_batches import HistoryBatches
from foretaste.training.judging import Judging
from foretaste.training.loop import fit
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.reporting import announce_fit, finish, report_epoch
from foretaste.training.resolve import TrainingPlan
from foretaste.training.step import CudaGraphRecorder, RecordedStep, Step


def train_neural(
    batches: Batches, checkpoints: Checkpoints, tell: Callable[[Judging], None], judging: Judging
) -> None:
    """Train by gradient steps from where the checkpoints stand, up to the best epoch's weights.

    ``tell`` is called first, for the log and whoever watches.
    """
    run, step, state = checkpoints.run, checkpoints.step, checkpoints.state
    model, plan = step.model, state.plan

    def checkpoint() -> None:
        checkpoints.save_if_due()
        judging.interruption.check(state.what_is_done())

    tell(judging)
    evaluate = None
    if judging.selection_split is not None:
        evaluate = partial(judging.select, model, plan.select_by)
    with _advice(run):
        try:
            reason = fit(
                step,
                batches,
                state,
                evaluate=evaluate,
                keep=lambda: run.save_weights(model.state_dict()),
                report=partial(report_epoch, run, judging),
                checkpoint=checkpoint,
                progress=judging.progress,
            )
        except Interrupted:
            checkpoints.save()
            raise
        checkpoints.save()
        model.load_state_dict(run.load_weights())
        finish(run, model, judging, state.clock, batches.num_samples, state.selection, reason)


@contextmanager
def _advice(run: Run) -> Iterator[None]:
    """Have errors say what is kept and how to go on."""
    try:
        yield
    except TrainingError as error:
        raise TrainingError(f"{error}. {_what_is_kept(run)}") from error
    except RunError as error:
        path = shlex.quote(str(run.path))
        raise RunError(
            f"{error}; once that is mended, go on with: foretaste train --resume {path}"
        ) from error


def _what_is_kept(run: Run) -> str:
    if not run.has_weights:
        return "No epoch was evaluated before it, so no weights are kept"
    path = shlex.quote(str(run.path))
    return f"The weights of the best epoch before it are kept: --from {path} starts from them"


def prepared_step(
    model: NeuralModel, batches: Batches, plan: TrainingPlan, precision: PrecisionPolicy
) -> Step:
    """Give ``model`` its first weights and the dtype of its products; returns how it learns."""
    model.reset_parameters(plan.seed)
    model.compute_dtype = precision.compute_dtype
    model.compiled = plan.compile
    if model.device.type == "cpu":
        keep_freed_memory()
    optimizer = adam(model, plan)
    num_samples = batches.samples_per_batch
    if is_recorded(model, plan, num_samples):
        recorder = CudaGraphRecorder(model.device)
        return RecordedStep(model, optimizer, precision, recorder, num_samples)
    return Step(model, optimizer, precision)


def is_recorded(model: NeuralModel, plan: TrainingPlan, num_samples: int) -> bool:
    """Whether the step of a full batch, of so many samples, becomes a CUDA graph."""
    on_gpu = plan.cuda_graphs and model.device.type == "cuda"
    return on_gpu and not model.waits_for_device(num_samples)


def prepared_batches(
    model: NeuralModel,
    histories: HistoryTensors,
    sampling: SamplingConfig | None,
    plan: TrainingPlan,
) -> Batches:
    """The batches of a plan: interactions with ``sampling``, else whole histories."""
    if sampling is not None:
        return InteractionBatches(histories, sampling, plan.batch_size, plan.seed)
    padded = is_recorded(model, plan, plan.batch_size)
    return HistoryBatches(histories, plan.batch_size, plan.seed, padded=padded)


def adam(model: torch.nn.Module, plan: TrainingPlan) -> torch.optim.Optimizer:
    """The optimizer of a plan: Adam over every parameter, each step in one fused pass."""
    return Adam(
        [parameter for parameter in model.parameters() if parameter.numel()],
        lr=plan.learning_rate,
        betas=(plan.beta1, plan.beta2),
        eps=plan.eps,
        fused=True,
        capturable=plan.device.startswith("cuda"),
    )


def train_closed_form(
    run: Run, model: ClosedFormModel, histories: HistoryTensors, judging: Judging
) -> None:
    """Fit in one pass."""
    announce_fit(run, model, len(histories), judging)
    clock = Clock()
    clock.go()
    model.fit(histories)
    clock.stop()
    clock.next_epoch()
    run.save_weights(model.state_dict())
    finish(run, model, judging, clock, len(histories), None, "fitted in one pass")
