"""The one training loop of all models with epochs, on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foretaste.evaluation.result import Evaluation
from foretaste.models.batches import Batches
from foretaste.ops.spans import in_spans
from foretaste.training.callbacks import Callback
from foretaste.training.state import TrainingState
from foretaste.training.step import Step


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What a training does between its updates."""

    evaluate: Callable[[], Evaluation] | None = None
    """Ranks the held-out users; without it the last epoch is the best."""

    keep: Callable[[], None] = lambda: None
    """Saves the weights after every evaluation that is the best so far."""

    checkpoint: Callable[[], None] = lambda: None
    """Called whenever model and state agree on what was done. It may stop the training by raising,
    and the training can be resumed from that point."""

    broadcast: Callable[[float], float] = float
    """Returns the value that decides for all ranks: the first rank's."""


def fit(
    step: Step, batches: Batches, state: TrainingState, hooks: Hooks, callback: Callback
) -> str:
    """Train from ``state`` until the epochs are done, patience runs out or the target is met.

    ``step`` has the model, and updates it by a batch; ``state`` follows the training. Returns why
    training ended. Raises TrainingError for a loss that is not finite.
    """
    plan, model, num_batches = state.plan, step.model.train(), batches.num_batches
    state.clock.compile_s += step.compile(batches)
    if step.begins_cold:
        state.clock.cold_epochs.append(state.epoch)
    while (reason := state.reason_to_stop()) is None:
        epoch = state.epoch
        # An evaluation leaves the model in evaluation mode.
        model.train()
        state.clock.start()
        # An epoch that was begun resumes at its next update. Order, negatives, dropout and noise
        # are functions of seed and position, so no generator has to be restored.
        for batch in in_spans("data", batches.epoch(epoch - 1, state.num_done)):
            step.adjust(plan.schedule(state.global_step, num_batches))
            state.count(step(batch), batch.num_samples)
            callback.stepped(epoch, state.num_done, num_batches)
            # Counted above: model and state agree that this update is done.
            hooks.checkpoint()
        # Several ranks are still updating their shared parameters: see `SharedStep`.
        step.finish()
        loss = state.mean_loss()  # sync: the first of the epoch; the clock waits for it
        state.clock.stop()
        # This check is outside the clock, because it reads every loss and weight.
        state.check_finite(model)
        step.scaler.check_updates(state.num_done)
        evaluation, value = None, None
        with step.use_evaluated_weights():
            if hooks.evaluate is not None and plan.evaluates(epoch):
                model.eval()
                evaluation = state.clock.add_evaluation(hooks.evaluate(), epoch)
                # The first rank's value decides: all ranks must agree on the best epoch and the
                # end.
                value = hooks.broadcast(evaluation[plan.select_by])
            is_best = state.early_stopping.update(epoch, value)
            # Weights are written before the state that names their epoch. After a kill in between,
            # the older state finds newer weights, and this epoch is done again.
            if is_best:
                hooks.keep()
        position = state.global_step - 1, num_batches
        settings = step.scaler.as_event() | model.schedule(*position) | plan.schedule(*position)
        callback.epoch_done(state.report(loss, settings, evaluation, is_best=is_best))
        state.next_epoch()
        hooks.checkpoint()
    return reason
