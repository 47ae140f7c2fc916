"""One training into its run directory: fit, log, keep the best weights, final numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from foretaste.errors import Interrupted, RunError, TrainingError
from foretaste.models.base import ClosedFormModel
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.paths import resume_command
from foretaste.runs.run import Run
from foretaste.training.batches import Batches
from foretaste.training.checkpoints import Checkpoints
from foretaste.training.clock import Clock
from foretaste.training.judging import Judging
from foretaste.training.loop import fit
from foretaste.training.reporting import (
    announce,
    announce_again,
    announce_fit,
    finish,
    report_epoch,
)


def train_neural(
    batches: Batches,
    checkpoints: Checkpoints,
    judging: Judging,
    started_from: dict[str, Any] | None,
    *,
    begins_again: bool,
) -> None:
    """Train by gradient steps from where the checkpoints stand, up to the best epoch's weights.

    ``started_from`` says which runs' weights it begins with; None where it goes on.
    ``begins_again``: whether an earlier start left no state to go on from.
    """
    run, step, state = checkpoints.run, checkpoints.step, checkpoints.state
    model, plan = step.model, state.plan

    def checkpoint() -> None:
        checkpoints.save_if_due()
        judging.interruption.check(state.what_is_done())

    if started_from is None:
        announce_again(run, model, state, judging)
    else:
        announce(run, model, state, started_from, judging, begins_again=begins_again)
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
                keep=lambda: run.save_weights(model.state_dict(), state.epoch),
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
        command = resume_command(run.path)
        raise RunError(f"{error}; once that is mended, go on with: {command}") from error


def _what_is_kept(run: Run) -> str:
    if not run.has_weights:
        return "No epoch was evaluated before it, so no weights are kept"
    path = shlex.quote(str(run.path))
    return f"The weights of the best epoch before it are kept: --from {path} starts from them"


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
