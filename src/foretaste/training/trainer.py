"""One training: set up, restore, fit, finish."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from foretaste._util.memory import peak_of_process, reset_peak_of_process
from foretaste.data.dataset import Dataset
from foretaste.errors import Interrupted, SettingError, TrainingError
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import (
    ClosedFormModel,
    ComposedModel,
    IterativeModel,
    NeuralModel,
)
from foretaste.models.batches import Batches
from foretaste.models.config import ModelConfig
from foretaste.models.memory import check_model_fits, num_parameters
from foretaste.models.registry import build_model
from foretaste.models.share import Share
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.ranks import ALONE, Ranks
from foretaste.runs.checkpoint_files import OwnRows
from foretaste.runs.loading import load_model
from foretaste.runs.run import Run
from foretaste.training.auto import TrainingPlan, followed_settings
from foretaste.training.callbacks import Callback, TrainingStart, TrainingSummary
from foretaste.training.checkpoint import Checkpoints, conditions
from foretaste.training.config import LogConfig, TrainingConfig
from foretaste.training.interruption import Agreement, Interruption, errors_say_how_to_go_on
from foretaste.training.logs import logged
from foretaste.training.loop import fit
from foretaste.training.optimizer import average_of, optimizers_of
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.state import Clock, TrainingState
from foretaste.training.step import Step, SweepStep, check_compiler
from foretaste.training.validation import Validation, check_evaluation_fits
from foretaste.training.warm_start import WarmStart


class Trainer:
    """Trains a model on a dataset.

    Args:
        config: the settings of the training, as a `TrainingPlan` for a model with epochs.
        ranks: the processes that train it together.

    Raises TrainingError where there is nothing to learn from, UnsupportedError where the model
    would not fit the machine, SettingError where the device is not there.
    """

    def __init__(
        self,
        dataset: Dataset,
        model: str,
        model_config: ModelConfig,
        config: TrainingConfig,
        ranks: Ranks = ALONE,
    ) -> None:
        self.dataset = dataset
        self.config = config
        self.ranks = ranks
        if dataset.manifest.num_interactions == 0:
            raise TrainingError(
                f"{dataset.path}: the training part is empty, nothing to learn from"
            )
        device = resolve_device(config.device)
        sizes = dataset.manifest.num_train_users, dataset.manifest.num_items
        share = Share.of(model_config.parallel, *sizes, ranks, dataset.user_bounds)
        self.histories = to_device(dataset.train_part(share.users), device)
        made_of = (model, model_config, share.num_users, share.num_items)
        check_model_fits(*made_of, device, share=share, to_train=True, has_average=bool(config.ema))
        self.model = build_model(*made_of, share).to(device)
        self.model.count_items(self.histories)
        check_evaluation_fits(self.model, dataset, config)
        self.has_begun = False
        self.started_from: dict[str, Any] = {}
        """Origin of the first weights, as logged; empty for weights by seed."""
        if isinstance(self.model, IterativeModel):
            assert isinstance(config, TrainingPlan)
            self.batches = make_batches(self.model, self.histories, config)
            self.step = make_step(self.model, self.batches, config)
            self.state = TrainingState.begin(
                config,
                num_steps_per_epoch=self.batches.num_batches,
                num_samples=self.batches.num_samples,
                device=device,
                ranks=ranks,
            )
        if isinstance(self.model, ComposedModel):
            runs = [Run.open(path) for path in self.model.run_paths()]
            for run in runs:
                if run.config.dataset.digest != dataset.manifest.digest:
                    raise SettingError(
                        f"{run.path} was trained on another dataset than {dataset.path}; foretaste "
                        f"train --like {run.path} {dataset.path} makes a run to blend in its place"
                    )
            self.model.compose([load_model(run, device) for run in runs])

    def begin(self, warm_start: WarmStart) -> dict[str, Any]:
        """Take the first weights; returns the record of the warm start for ``config.json``.

        Raises what `WarmStart.apply` raises.
        """
        self.has_begun = True
        if not isinstance(self.model, IterativeModel):
            return {}
        record, self.started_from = warm_start.apply(self.model, self.dataset)
        return record

    def train(self, run: Run, logs: LogConfig, callback: Callback) -> None:
        """Train from the state of the run to the end; no other process may train it.

        Raises Interrupted, a KeyboardInterrupt, once the state was saved after Ctrl-C, SIGTERM or
        SIGHUP; RunError, with the run as it was, where its saved state does not fit.
        """
        is_first = self.ranks.is_first
        with (
            Interruption(run.path, self.ranks) as interruption,
            logged(run, logs, callback) if is_first else nullcontext(Callback()) as callbacks,
        ):

            def progress(split: str, num_done: int, num_users: int) -> None:
                callbacks.evaluating(split, num_done, num_users)
                interruption.check(f"while ranking the {split} part")

            validation = Validation(self.dataset, self.model, self.config, progress)
            if isinstance(self.model, IterativeModel):
                self._fit_epochs(run, validation, callbacks, interruption)
            else:
                self._fit_at_once(run, validation, callbacks, interruption)

    def _restore(self, run: Run, checkpoints: Checkpoints) -> tuple[bool, str | None]:
        """Go to the saved state of the run, else to the beginning, and its log too.

        Returns True where there was a saved state, and the position, for people, that a training
        goes on from. The run keeps its files until all that may not fit does.
        """
        if checkpoints.load():
            here = conditions(self.model.device, self.ranks)
            now = {"num_ranks": 1} | here["versions"] | here["hardware"]
            begun = {"num_ranks": 1, **run.config.versions, **run.config.hardware}
            changed = [f"{name} {value}" for name, value in begun.items() if value != now.get(name)]
            note = f" (begun with {', '.join(changed)}: last digits may differ)" if changed else ""
            return True, self.state.where() + note
        position = None
        if not self.has_begun:
            self.begin(WarmStart.of_record(run.config.start))
            position = "epoch 1: it had ended before a state was saved"
        if self.ranks.is_first:
            run.begin_anew()
        return False, position

    def _fit_epochs(
        self, run: Run, validation: Validation, callback: Callback, interruption: Interruption
    ) -> None:
        """Fit epoch by epoch, up to the best epoch's weights."""
        state, plan = self.state, self.state.plan
        checkpoints = Checkpoints(run, self.step, state)
        is_resumed, resumed_at = self._restore(run, checkpoints)
        start = self._start(validation, state)
        callback.started(replace(start, is_resumed=is_resumed, resumed_at=resumed_at))
        agreement = Agreement(self.ranks)

        def checkpoint() -> None:
            at_once = state.num_done == 0 or plan.checkpoint_every_s == 0
            is_due, signal = agreement.reach(
                checkpoints.is_due(), interruption.last, at_once=at_once
            )
            if is_due:
                checkpoints.save()
            interruption.check(state.what_is_done(), signal)

        def keep() -> None:
            epoch = state.early_stopping.best_epoch
            validation.keep()
            run.save_weights(self.model.state_dict(), epoch, OwnRows.of_model(self.model))
            self.ranks.wait_for_first()

        is_selecting = validation.selection_split is not None
        evaluate = partial(validation.select, plan.select_by) if is_selecting else None
        with errors_say_how_to_go_on(run, self.ranks):
            try:
                reason = fit(
                    self.step,
                    self.batches,
                    state,
                    evaluate=evaluate,
                    keep=keep,
                    checkpoint=checkpoint,
                    callback=callback,
                )
            except Interrupted:
                checkpoints.save()
                raise
            checkpoints.save()
            best, stopping = run.open_weights(OwnRows.of_model(self.model)), state.early_stopping
            self.model.load_state_dict(best.tensors)
            prior = validation.choose_prior(plan.select_by, stopping.best_value)
            if prior.evaluation is not None:
                stopping.best_value = prior.evaluation[plan.select_by]
                keep()
            summary = self._summary(validation, state.clock, state.num_samples, reason, state)
            chosen = replace(summary, prior_weight=prior.weight, validation=prior.evaluation)
            callback.finished(chosen)
            if self.ranks.is_first:
                run.discard_state()

    def _fit_at_once(
        self, run: Run, validation: Validation, callback: Callback, interruption: Interruption
    ) -> None:
        model, num_samples, clock = self.model, len(self.histories), Clock()
        assert isinstance(model, ClosedFormModel)
        run.begin_anew()
        callback.started(replace(self._start(validation, None), fitting=model.fitting_note()))

        def progress(*how_far: Any) -> None:
            callback.fitting(*how_far)
            interruption.check("while fitting, which begins anew")

        clock.go()
        model.fit(self.histories, progress)
        interruption.check("while fitting, which begins anew")
        clock.stop()
        clock.next_epoch()
        run.save_weights(model.state_dict())
        callback.finished(self._summary(validation, clock, num_samples, "fitted in one pass", None))

    def _start(self, validation: Validation, state: TrainingState | None) -> TrainingStart:
        """The event of a training that begins; the peak of memory is counted from here."""
        reset_peak_of_process()
        if self.model.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.model.device)
        manifest = self.dataset.manifest
        return TrainingStart(
            model=self.model.name,
            dataset=str(self.dataset.path),
            protocol=manifest.protocol,
            plan=state.plan if state else None,
            model_settings=followed_settings(self.model),
            num_users=manifest.num_train_users,
            num_items=manifest.num_items,
            num_interactions=manifest.num_interactions,
            num_parameters=num_parameters(self.model),
            num_samples=state.num_samples if state else len(self.histories),
            num_steps_per_epoch=state.num_steps_per_epoch if state else 1,
            selection_split=validation.selection_split,
            started_from=self.started_from,
            num_ranks=self.ranks.size,
        )

    def _summary(
        self,
        validation: Validation,
        clock: Clock,
        num_samples: int,
        reason: str,
        state: TrainingState | None,
    ) -> TrainingSummary:
        """The final numbers, once the best weights are evaluated on the test part."""
        model, stopping = self.model.eval(), state.early_stopping if state else None
        select_by = stopping.plan.select_by if stopping else None
        test = validation.final
        if test is None and (test := validation.test(select_by)) is not None:
            clock.counted(test, None)
        target_epoch = stopping.target_epoch if stopping else None
        return TrainingSummary(
            stopped_because=reason,
            select_by=select_by,
            selection_split=validation.selection_split if stopping else None,
            best_epoch=stopping.best_epoch if stopping else None,
            best_value=stopping.best_value if stopping else None,
            target_epoch=target_epoch,
            target_s=None if target_epoch is None else clock.until(target_epoch),
            memory_mib=peak_memory_mib(model.device),
            test=test,
            **clock.times(num_samples, stopping.plan.warm_up_epochs if stopping else 0),
        )


def make_batches(model: IterativeModel, histories: HistoryTensors, plan: TrainingPlan) -> Batches:
    """The batches of a plan."""
    padded = is_recorded(model, plan, plan.batch_size)
    return model.make_batches(histories, batch_size=plan.batch_size, seed=plan.seed, padded=padded)


def make_step(model: IterativeModel, batches: Batches, plan: TrainingPlan) -> Step:
    """Give ``model`` its first weights and the dtype of its products; returns its step."""
    precision = PrecisionPolicy(
        precision=plan.precision, device=model.device, loss_scale=plan.loss_scale
    )
    if plan.compile:
        check_compiler(model.device)
    model.reset_parameters(plan.seed)
    if not isinstance(model, NeuralModel):
        return SweepStep(model, (), precision)
    model.compute_dtype = precision.compute_dtype
    model.implementation = "compiled" if plan.compile else plan.kernels
    optimizers, average = optimizers_of(model, plan), average_of(model, plan)
    num_samples = batches.samples_per_batch
    if is_recorded(model, plan, num_samples):
        from foretaste.training.cuda_graph import CudaGraphRecorder, RecordedStep

        recorder = CudaGraphRecorder(model.device)
        return RecordedStep(model, optimizers, precision, recorder, num_samples, average)
    return Step(model, optimizers, precision, average)


def is_recorded(model: IterativeModel, plan: TrainingPlan, num_samples: int) -> bool:
    """True where the step of a full batch, of so many samples, becomes a CUDA graph."""
    if not (plan.cuda_graphs and model.device.type == "cuda" and isinstance(model, NeuralModel)):
        return False
    # With several optimizers, equal shapes may be steps of different ones; a rank's parts of full
    # batches have no shape in common.
    is_alone = model.share.ranks.size == 1 and len(model.parameter_groups()) == 1
    return is_alone and not model.waits_for_device(num_samples)


def peak_memory_mib(device: torch.device) -> float:
    """Peak of this process in MiB, or of the GPU's allocator."""
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_of_process()
    return peak / 2**20
