"""One training: set up, restore, fit, finish."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from foretaste._util.formatting import memory, pluralize
from foretaste._util.memory import require_memory
from foretaste._util.system import peak_of_process, reset_peak_of_process
from foretaste.data.dataset import Dataset
from foretaste.errors import Interrupted, SettingError, TrainingError
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import (
    ClosedFormModel,
    ComposedModel,
    IterativeModel,
    NeuralModel,
    RecommenderModel,
)
from foretaste.models.memory import check_model_fits, free_on, num_parameters, training_bytes
from foretaste.models.registry import Definition, build_model
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.config import installed_versions
from foretaste.runs.run import Run, load_model
from foretaste.training.auto import TrainingPlan, derived_settings, training_size
from foretaste.training.callbacks import Callback, TrainingStart, TrainingSummary
from foretaste.training.checkpoint import Checkpoints, hardware_of
from foretaste.training.features import hand_features
from foretaste.training.interruption import Interruption, errors_say_how_to_resume
from foretaste.training.logs import open_logs
from foretaste.training.loop import Hooks, fit
from foretaste.training.request import TrainRequest
from foretaste.training.search import Fit
from foretaste.training.state import Clock, TrainingState
from foretaste.training.strategy import Strategy
from foretaste.training.validation import Validation, check_evaluation_fits
from foretaste.training.warm_start import take_first_weights


def make_trainer(
    request: TrainRequest, dataset: Dataset, strategy: Strategy, fitted: Fit | None = None
) -> Trainer:
    """Return the trainer of a request without ``auto``.

    The config is a `TrainingPlan` if the model has epochs. ``fitted`` is a model of these settings
    that is fitted to the training part already. Raises TrainingError if there is nothing to learn
    from, UnsupportedError if the model would not fit the machine, SettingError if the device is not
    there, and RankError if ranks found other settings or have other devices.
    """
    if dataset.manifest.num_interactions == 0:
        raise TrainingError(f"{dataset.name}: the training part is empty, nothing to learn from")
    model_config, config = request.model_config, request.config
    device = strategy.device(config.device)
    is_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_gpu else torch.backends.cpu.get_cpu_capability()
    # Ranks may find other values for `auto`: tf32 is for GPUs that have it.
    strategy.check_alike(request.settings() | {"device": name})
    num_users = dataset.manifest.num_train_users
    num_items = model_config.num_listed(
        dataset.manifest.num_items, dataset.manifest.num_listed_items
    )
    users = strategy.users(model_config.parallel, dataset.user_bounds)
    # If users are shared among processes, each reads only the interactions of its own users.
    own = range(num_users) if users is None else users
    trained = dataset.train_part(own, order=model_config.uses_order).within(num_items)
    histories = to_device(trained, device)
    if model_config.takes_weights and (weight := dataset.train_weights(own)) is not None:
        histories = replace(histories, weight=torch.tensor(weight, device=device))
    if fitted is not None:
        assert isinstance(fitted.model, ClosedFormModel)
        return OnePassTrainer(request, dataset, fitted.model, histories, strategy, fitted.fit_s)
    made_of = Definition(request.model, model_config, num_users, num_items)
    check_model_fits(
        made_of,
        device,
        users=users,
        to_train=True,
        has_average=isinstance(config, TrainingPlan) and config.ema > 0,
        num_processes=strategy.num_processes_here,
    )
    built = build_model(*made_of, users).to(device)
    built.count_items(histories, strategy.parts)
    hand_features(dataset, built, device)
    check_evaluation_fits(built, dataset, config)
    if isinstance(built, IterativeModel):
        return EpochTrainer(request, dataset, built, histories, strategy)
    assert isinstance(built, ClosedFormModel)
    return OnePassTrainer(request, dataset, built, histories, strategy)


class Trainer(ABC):
    """Trains a model on a dataset; `make_trainer` makes the one that suits the model."""

    _num_copies = 1
    """Number of files as large as the weights that the run has at the same time."""

    def __init__(
        self,
        request: TrainRequest,
        dataset: Dataset,
        model: RecommenderModel,
        histories: HistoryTensors,
        strategy: Strategy,
    ) -> None:
        self.request = request
        self.dataset = dataset
        self.model = model
        self.strategy = strategy
        self.order = self._order(histories)
        self.search_s = 0.0
        """Seconds of the search for its settings."""
        self.hardware = {**hardware_of(model.device), **strategy.hardware}

    def begin(self) -> dict[str, Any]:
        """Take the first weights; returns the record of the warm start for ``config.json``.

        Raises SettingError and RunError as `take_first_weights` does.
        """
        return {}

    def file_bytes(self) -> int:
        """Return about the most bytes of the run's files; ids and histories as in the dataset."""
        weights = max(self.model.weight_bytes(), 4 * num_parameters(self.model))
        files = sum(file.stat().st_size for file in self.dataset.path.iterdir() if file.is_file())
        return files + weights * self._num_copies

    @abstractmethod
    def train(self, run: Run, callback: Callback) -> None:
        """Train from the state of the run to the end; no other process may train it.

        The run keeps the weights, and the callback is told from the start to the summary. Raises
        Interrupted, a KeyboardInterrupt, once the state was saved after Ctrl-C, SIGTERM or SIGHUP;
        RunError, with the run as it was, if its saved state does not fit.
        """

    @contextmanager
    def _open_logs(
        self, run: Run, callback: Callback
    ) -> Iterator[tuple[Validation, Callback, Interruption]]:
        """Write the logs and note signals while the block runs."""
        writes, request = self.strategy.is_main, self.request
        with (
            self.strategy.interruption(run.place) as interruption,
            (
                open_logs(run, request.logs, callback, interruption.output_closed)
                if writes
                else nullcontext(Callback())
            ) as callbacks,
        ):
            # A signal is acted on between two batches of users, so no ranking has to end first.
            def progress(split: str, num_done: int, num_users: int) -> None:
                callbacks.evaluating(split, num_done, num_users)
                interruption.check(f"while ranking the {split} part")

            validation = Validation(
                self.dataset, self.model, request.config, self.strategy, progress
            )
            yield validation, callbacks, interruption

    def _start(self, run: Run, validation: Validation, **own: Any) -> TrainingStart:
        """Return the event of a training that begins; the peak of memory is counted from here."""
        reset_peak_of_process()
        if self.model.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.model.device)
        manifest = self.dataset.manifest
        return TrainingStart(
            model=self.model.name,
            dataset=self.dataset.name,
            protocol=manifest.protocol,
            model_settings=derived_settings(self.model),
            num_users=manifest.num_train_users,
            num_items=manifest.num_items,
            num_interactions=manifest.num_interactions,
            num_parameters=num_parameters(self.model),
            selection_split=validation.selection_split,
            search=run.config.search,
            order=self.order,
            weights=self._weights(),
            new_items=self._new_items(),
            **own,
        )

    def _order(self, histories: HistoryTensors) -> str | None:
        """Return a line on the order's limits; None without limits, or if order is ignored."""
        if not self.model.config.uses_order:
            return None
        doubts = [self.dataset.manifest.notes.get("ties")]
        if num_single := int((histories.lengths() == 1).sum()):
            doubts.append(f"{pluralize(num_single, 'user')} with one item, which nothing follows")
        return "; ".join(filter(None, doubts)) or None

    def _new_items(self) -> str | None:
        """Return a line on the items that nobody has touched; None if the data have none."""
        manifest = self.dataset.manifest
        if not (num_new := manifest.num_listed_items - manifest.num_items):
            return None
        if self.model.num_items > manifest.num_items:
            return f"{num_new:,}, listed by their features"
        return f"{num_new:,}, in no list: {self.model.name} does not learn from features"

    def _weights(self) -> str | None:
        """Return a line on the weights of the data; None if they have none."""
        mean_weight = self.dataset.manifest.mean_weight
        if mean_weight is None:
            return None
        if isinstance(self.model, ComposedModel):
            return "as in the runs that are blended"
        if self.model.config.takes_weights:
            return f"an interaction counts as its weight over {mean_weight:.3g}, the mean"
        return f"not used: {self.model.name} learns from presence alone"

    def _summary(
        self,
        validation: Validation,
        clock: Clock,
        num_samples: int,
        /,
        *,
        num_warm_up: int = 0,
        **own: Any,
    ) -> TrainingSummary:
        """Evaluate the kept weights on the test part; returns the final numbers."""
        self.model.eval()
        test = validation.final
        if test is None and (test := validation.test()) is not None:
            clock.add_evaluation(test, None)
        return TrainingSummary(
            popularity=validation.beside_popularity(test),
            memory_mib=peak_memory_mib(self.model.device),
            test=test,
            search_s=self.search_s,
            **own,
            **clock.times(num_samples, num_warm_up),
        )


class EpochTrainer(Trainer):
    """Trains a model epoch by epoch, up to the best epoch's weights."""

    model: IterativeModel

    _num_copies = 9
    """The best weights and two states: one is written beside the other. A state has the weights,
    their average and the optimizer's two moments."""

    def __init__(
        self,
        request: TrainRequest,
        dataset: Dataset,
        model: IterativeModel,
        histories: HistoryTensors,
        strategy: Strategy,
    ) -> None:
        super().__init__(request, dataset, model, histories, strategy)
        assert isinstance(request.config, TrainingPlan)
        self.plan = plan = request.config
        self.has_begun = False
        self.started_from: dict[str, Any] = {}
        """Origin of the first weights, as logged; empty for weights by seed."""
        # The step fills the weights by the seed; `begin` replaces those that another run has.
        self.batches, self.step = strategy.batches_and_step(model, histories, plan)
        self.memory = self._memory()
        self.state = TrainingState.begin(
            plan,
            num_steps_per_epoch=self.batches.num_batches,
            num_samples=self.batches.num_samples,
            device=model.device,
            total=strategy.parts.total,
        )

    def _memory(self) -> str | None:
        """Return a line on the memory that it takes at most; None if it is unknown.

        Raises UnsupportedError if it would not fit.
        """
        model = self.model
        if not isinstance(model, NeuralModel) or (step := model.step_bytes(self.batches)) is None:
            return None
        needed = step + training_bytes(model, model.device, self.plan.ema > 0)
        free = free_on(model.device, self.strategy.num_processes_here) + model.weight_bytes()
        advice = "choose a smaller --batch-size or --max-length"
        require_memory(needed, free, f"a step of {model.name}", advice)
        return f"{memory(needed)} at most for weights, Adam and a step, beside the histories"

    def begin(self, begun: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``begun`` is the record of the same start by an earlier process."""
        self.has_begun = True
        record, self.started_from = take_first_weights(
            self.request, self.model, self.dataset, begun or {}
        )
        return record

    def _restore(self, run: Run, checkpoints: Checkpoints) -> tuple[bool, str | None]:
        """Restore the saved state of the run and cut its log to it; without one, begin. Returns
        True if there was a saved state, and the position from which the training resumes, for
        people. The run keeps its files until everything is known to fit.
        """
        if checkpoints.load():
            alone = {"num_ranks": 1}
            now = alone | installed_versions() | self.hardware
            begun = alone | dict(run.config.versions) | dict(run.config.hardware)
            changed = [f"{name} {value}" for name, value in begun.items() if value != now.get(name)]
            note = f" (begun with {', '.join(changed)}: last digits may differ)" if changed else ""
            return True, self.state.where() + note
        position = None
        if not self.has_begun:
            self.begin(run.config.start)
            position = "epoch 1: it had ended before a state was saved"
        if self.strategy.is_main:
            run.reset()
        return False, position

    def train(self, run: Run, callback: Callback) -> None:
        state, plan = self.state, self.plan
        with self._open_logs(run, callback) as (validation, callbacks, interruption):
            checkpoints = self.strategy.checkpoints(run, self.step, state, self.hardware)
            callbacks.started(self._restore_position(run, validation, checkpoints))

            def checkpoint() -> None:
                # At the end of an epoch, and with a save after every update, the ranks agree at
                # once.
                at_once = state.num_done == 0 or plan.checkpoint_every_s == 0
                is_due, signal = interruption.poll(checkpoints.is_due(), at_once=at_once)
                if is_due:
                    checkpoints.save()
                interruption.end(state.describe_progress(), signal)

            def keep() -> None:
                validation.keep()
                checkpoints.write_weights(self.model, state.early_stopping.best_epoch)

            def evaluate() -> Evaluation:
                is_only = state.epoch == plan.epochs and not state.early_stopping.best_epoch
                return validation.select(is_only=is_only)

            is_selecting = validation.selection_split is not None
            hooks = Hooks(
                evaluate=evaluate if is_selecting else None,
                keep=keep,
                checkpoint=checkpoint,
                broadcast=self.strategy.broadcast,
            )
            with errors_say_how_to_resume(run, interruption.command, writes=self.strategy.is_main):
                try:
                    reason = fit(self.step, self.batches, state, hooks, callbacks)
                except Interrupted:
                    # The signal came between two updates or in a ranking. All updates are counted,
                    # so the ranking is done again.
                    checkpoints.save()
                    raise
                # With this state, a run that is killed during the test repeats no epoch.
                checkpoints.save()
                # Memory has the weights of the last epoch, the file those of the best epoch.
                self.model.load_state_dict(checkpoints.read_weights(self.model))
                # The summary is in the log before the state goes: a kill in between leaves a run
                # that is finished, and `resume` removes the state.
                callbacks.finished(self._finish(validation, keep, reason))
                if self.strategy.is_main:
                    run.discard_state()

    def _restore_position(
        self, run: Run, validation: Validation, checkpoints: Checkpoints
    ) -> TrainingStart:
        """Restore the position of the run; return the event that training begins or resumes."""
        is_resumed, resumed_at = self._restore(run, checkpoints)
        size = training_size(self.dataset.manifest)
        return self._start(
            run,
            validation,
            plan=self.plan,
            num_samples=self.state.num_samples,
            num_steps_per_epoch=self.state.num_steps_per_epoch,
            auto_batch_size=self.model.auto_settings(size, self.model.config).get("batch_size"),
            started_from=self.started_from,
            memory=self.memory,
            is_resumed=is_resumed,
            resumed_at=resumed_at,
        )

    def _finish(
        self, validation: Validation, keep: Callable[[], None], reason: str
    ) -> TrainingSummary:
        """Choose the fold-in of the best epoch's weights, and ``keep`` them with it; returns the
        event of the training that is done."""
        state, plan, stopping = self.state, self.plan, self.state.early_stopping
        fold_in, chosen = validation.choose_fold_in(stopping.best_value)
        if chosen is not None:
            stopping.best_value = chosen[plan.select_by]
            keep()
        target_epoch = stopping.target_epoch
        return self._summary(
            validation,
            state.clock,
            state.num_samples,
            num_warm_up=plan.warm_up_epochs,
            stopped_because=reason,
            select_by=plan.select_by,
            selection_split=validation.selection_split,
            best_epoch=stopping.best_epoch,
            best_value=stopping.best_value,
            target_epoch=target_epoch,
            target_s=None if target_epoch is None else state.clock.elapsed_until(target_epoch),
            fold_in=fold_in,
            validation=chosen,
        )


class OnePassTrainer(Trainer):
    """Fits a model in one pass; a composed model gets the models of its runs first."""

    model: ClosedFormModel

    def __init__(
        self,
        request: TrainRequest,
        dataset: Dataset,
        model: ClosedFormModel,
        histories: HistoryTensors,
        strategy: Strategy,
        fit_s: float | None = None,
    ) -> None:
        """With ``fit_s`` the model was fitted before, in that many seconds."""
        super().__init__(request, dataset, model, histories, strategy)
        self.histories, self.fit_s = histories, fit_s
        if isinstance(model, ComposedModel):
            runs = [Run.open(path) for path in model.run_paths()]
            for run in runs:
                if run.config.dataset.digest != dataset.manifest.digest:
                    raise SettingError(
                        f"{run.path} was trained on another dataset than {dataset.path}; foretaste "
                        f"train --like {run.path} {dataset.path} makes a run to blend in its place"
                    )
            model.compose([load_model(run, model.device) for run in runs])

    def train(self, run: Run, callback: Callback) -> None:
        with self._open_logs(run, callback) as (validation, callbacks, interruption):
            run.reset()
            num_samples, clock = len(self.histories), Clock()
            start = self._start(
                run,
                validation,
                plan=None,
                num_samples=num_samples,
                num_steps_per_epoch=1,
                started_from={},
                fitting=self.model.fitting_note(self.histories),
            )
            callbacks.started(start)

            def progress(step: str, num_done: int, num_all: int) -> None:
                callbacks.fitting(step, num_done, num_all)
                interruption.check("while fitting, which begins again")

            if self.fit_s is None:
                clock.start()
                self.model.fit(self.histories, progress)
                clock.stop()
            else:
                clock.running_s = self.fit_s
            interruption.check("while fitting, which begins again")
            clock.next_epoch()
            run.save_weights(self.model.state_dict())
            reason = "fitted in one pass"
            summary = self._summary(validation, clock, num_samples, stopped_because=reason)
            callbacks.finished(summary)


def peak_memory_mib(device: torch.device) -> float | None:
    """Return the peak of this process in MiB, or of the GPU's allocator; None if it is unknown."""
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_of_process()
    return None if peak is None else peak / 2**20
