"""A training put together from what ``config.json`` says and a dataset: new ones and resumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from foretaste.data.dataset import Dataset
from foretaste.errors import RunError, SettingError, TrainingError
from foretaste.evaluation.ranking import check_ranking_fits, to_device
from foretaste.models.base import ClosedFormModel, NeuralModel, RecommenderModel
from foretaste.models.memory import check_model_fits
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.registry import CLOSED_FORMS, SAMPLING_MODELS, build_model
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.config import RunConfig
from foretaste.runs.loading import model_config
from foretaste.runs.paths import CONFIG
from foretaste.runs.run import Run
from foretaste.training.checkpoints import Checkpoints
from foretaste.training.config import LogConfig
from foretaste.training.interruption import Interruption
from foretaste.training.job import train_closed_form, train_neural
from foretaste.training.judging import Judging
from foretaste.training.logs import logged
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.preparing import prepared_batches, prepared_step
from foretaste.training.progress import Progress
from foretaste.training.resolve import TrainingPlan
from foretaste.training.state import TrainingState
from foretaste.training.step import check_compiler
from foretaste.training.warm_start import WarmStart


def assemble(config: RunConfig, dataset: Dataset, config_path: Path = Path(CONFIG)) -> Training:
    """The training of a config, which was read from ``config_path``.

    Raises TrainingError where there is nothing to learn from, UnsupportedError where the model
    would not fit the machine, SettingError where the device is not there.
    """
    kind = ClosedFormTraining if config.model in CLOSED_FORMS else NeuralTraining
    return kind(config, dataset, config_path)


class Training(ABC):
    """One training, ready to be carried out into its run."""

    def __init__(self, config: RunConfig, dataset: Dataset, config_path: Path) -> None:
        self.config = config
        self.config_path = config_path
        self.dataset = dataset
        self.histories = _training_histories(dataset, resolve_device(config.resolved["device"]))
        if (at_once := config.asked["evaluation_batch"]) is not None:
            num_users = min(at_once, dataset.manifest.num_users)
            check_ranking_fits(num_users, dataset.manifest.num_items, self.device)

    @property
    def device(self) -> torch.device:
        return self.histories.device

    @abstractmethod
    def begin(self) -> RunConfig:
        """Take the first weights; returns the config with all that a new run is to keep.

        Raises what `WarmStart.open` raises.
        """

    def carry_out(self, run: Run, logs: LogConfig, progress: Progress) -> None:
        """Train from where the run stands to the end; nobody else may be at it.

        Raises Interrupted, a KeyboardInterrupt, once the state was saved after Ctrl-C, SIGTERM or
        SIGHUP; RunError, with the run as it was, where its saved state does not fit.
        """
        asked = self.config.asked
        with Interruption(run.path) as interruption, logged(run, logs, progress) as told:
            self._take_up(run)
            judging = Judging(
                dataset=self.dataset,
                candidates=asked["candidates"],
                validation_users=asked["validation_users"],
                evaluation_batch=asked["evaluation_batch"],
                progress=told,
                interruption=interruption,
            )
            self._train(run, judging)

    @abstractmethod
    def _take_up(self, run: Run) -> None:
        """Go to where the run stands, its log too: to its saved state, else to the beginning.

        Whatever follows the log learns here what it goes on from. The run keeps what it has until
        all that may not fit does.
        """

    @abstractmethod
    def _train(self, run: Run, judging: Judging) -> None:
        """Train from there to the end."""

    def _built_model(self) -> RecommenderModel:
        settings = model_config(self.config, self.config_path)
        num_users, num_items = len(self.histories), self.histories.num_items
        check_model_fits(
            self.config.model, settings, num_users, num_items, self.device, to_train=True
        )
        return build_model(self.config.model, settings, num_users, num_items)

    def _settings(self, kind: type[Any], values: Mapping[str, Any]) -> Any:
        """An instance of a settings class from those of ``values`` that are its fields."""
        try:
            return kind(**{item.name: values[item.name] for item in fields(kind)})
        except (KeyError, SettingError) as error:
            raise RunError(
                f"{self.config_path} does not say what this foretaste needs to know ({error}); "
                "go on with the version that began the run"
            ) from error


class ClosedFormTraining(Training):
    """A model fitted in one pass."""

    def __init__(self, config: RunConfig, dataset: Dataset, config_path: Path) -> None:
        super().__init__(config, dataset, config_path)
        model = self._built_model()
        assert isinstance(model, ClosedFormModel)
        self.model = model.to(self.device)
        self.model.count_items(self.histories)

    def begin(self) -> RunConfig:
        return self.config

    def _take_up(self, run: Run) -> None:
        run.begin_anew()

    def _train(self, run: Run, judging: Judging) -> None:
        train_closed_form(run, self.model, self.histories, judging)


class NeuralTraining(Training):
    """A model that learns in steps."""

    def __init__(self, config: RunConfig, dataset: Dataset, config_path: Path) -> None:
        super().__init__(config, dataset, config_path)
        model = self._built_model()
        assert isinstance(model, NeuralModel)
        self.model = model.to(self.device)
        self.model.count_items(self.histories)
        self.plan: TrainingPlan = self._settings(TrainingPlan, config.resolved)
        precision = PrecisionPolicy(
            precision=self.plan.precision, device=self.device, loss_scale=self.plan.loss_scale
        )
        if self.plan.compile:
            check_compiler(self.device)
        self.batches = prepared_batches(self.model, self.histories, self._sampling(), self.plan)
        self.step = prepared_step(self.model, self.batches, self.plan, precision)
        self.state = TrainingState.begin(
            self.plan,
            num_batches=self.batches.num_batches,
            num_samples=self.batches.num_samples,
            device=self.device,
        )
        self.started_from: dict[str, Any] | None = None
        """What the log says of where the first weights came from; None until it begins, and where
        it goes on from a saved state."""
        self.begins_again = False
        """Whether an earlier start left no saved state to go on from."""

    def begin(self) -> RunConfig:
        warm_start = WarmStart.open(self.config.start, self.model, self.dataset)
        warm_start.apply(self.model)
        self.started_from = warm_start.summary()
        return replace(self.config, start=warm_start.record())

    def _take_up(self, run: Run) -> None:
        if Checkpoints(run, self.step, self.state).load():
            return
        self.begins_again = self.started_from is None
        if self.begins_again:
            self.begin()
        run.begin_anew()

    def _train(self, run: Run, judging: Judging) -> None:
        checkpoints = Checkpoints(run, self.step, self.state)
        train_neural(
            self.batches, checkpoints, judging, self.started_from, begins_again=self.begins_again
        )

    def _sampling(self) -> SamplingConfig | None:
        if self.config.model not in SAMPLING_MODELS:
            return None
        sampling: SamplingConfig = self._settings(SamplingConfig, self.config.asked)
        return sampling


def _training_histories(dataset: Dataset, device: torch.device) -> HistoryTensors:
    """The training part on a device; TrainingError where it is empty."""
    train = dataset.train
    if train.num_interactions == 0:
        raise TrainingError(f"{dataset.path}: the training part is empty, nothing to learn from")
    return to_device(train, device)
