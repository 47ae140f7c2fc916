"""A training put together from what ``config.json`` says and a dataset: new ones and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from foretaste.data.dataset import Dataset
from foretaste.errors import RunError, SettingError, TrainingError
from foretaste.evaluation.scoring import to_device
from foretaste.models.base import ClosedFormModel, NeuralModel
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.registry import SAMPLING_MODELS, build_model
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.config import RunConfig
from foretaste.runs.loading import model_config
from foretaste.runs.run import CONFIG, Run
from foretaste.training.interruption import Interruptible
from foretaste.training.job import prepared_batches, train_closed_form, train_neural
from foretaste.training.judging import Judging
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.progress import Progress
from foretaste.training.resolve import TrainingPlan
from foretaste.training.step import check_compiler
from foretaste.training.warm_start import WarmStart


class Training:
    """One training, ready to be carried out into its run.

    Raises TrainingError where there is nothing to learn from, UnsupportedError where the model
    would not fit the machine, SettingError where the device is not there.
    """

    def __init__(
        self, config: RunConfig, dataset: Dataset, config_path: Path = Path(CONFIG)
    ) -> None:
        self.config = config
        self.config_path = config_path
        self.dataset = dataset
        self.device = resolve_device(config.resolved["device"])
        self.histories = _training_histories(dataset, self.device)
        num_users, num_items = len(self.histories), self.histories.num_items
        settings = model_config(config, config_path)
        self.model = build_model(config.model, settings, num_users, num_items)
        if isinstance(self.model, ClosedFormModel):
            self.model.check_fits(self.device)
        self.model.to(self.device).count_items(self.histories)
        self._warm_start: WarmStart | None = None
        if isinstance(self.model, ClosedFormModel):
            return
        self.plan: TrainingPlan = self._settings(TrainingPlan, config.resolved)
        self.precision = PrecisionPolicy(
            precision=self.plan.precision, device=self.device, loss_scale=self.plan.loss_scale
        )
        if self.plan.compile:
            check_compiler(self.device)

    def open_start(self) -> RunConfig:
        """The config with what is to be known of the runs whose weights the training begins with.

        Raises what `WarmStart.open` raises.
        """
        if not self.config.start:
            return self.config
        assert isinstance(self.model, NeuralModel)
        self._warm_start = WarmStart.open(self.config.start, self.model, self.dataset)
        return replace(self.config, start=self._warm_start.record())

    def carry_out(self, run: Run, progress: Progress) -> None:
        """Train from where the run stands to the end; nobody else may be at it.

        Raises Interrupted, a KeyboardInterrupt, once the state was saved after Ctrl-C or SIGTERM.
        """
        with Interruptible(progress, run.path) as told:
            asked = self.config.asked
            judging = Judging(
                dataset=self.dataset,
                candidates=asked["candidates"],
                validation_users=asked["validation_users"],
                evaluation_batch=asked["evaluation_batch"],
                progress=told,
            )
            if isinstance(self.model, ClosedFormModel):
                train_closed_form(run, self.model, self.histories, judging)
                return
            assert isinstance(self.model, NeuralModel)
            sampling = (
                self._settings(SamplingConfig, asked)
                if self.config.model in SAMPLING_MODELS
                else None
            )
            batches = prepared_batches(self.model, self.histories, sampling, self.plan)
            train_neural(run, self.model, batches, self.plan, self.precision, judging, self._start)

    def _start(self, model: NeuralModel) -> dict[str, Any]:
        """Replace the first weights where that was asked for; returns what was found where."""
        if self._warm_start is None:
            self.open_start()
        if self._warm_start is None:
            return {}
        self._warm_start.apply(model)
        return self._warm_start.summary()

    def _settings(self, kind: type[Any], values: Mapping[str, Any]) -> Any:
        """An instance of a settings class from those of ``values`` that are its fields."""
        try:
            return kind(**{item.name: values[item.name] for item in fields(kind)})
        except (KeyError, SettingError) as error:
            raise RunError(
                f"{self.config_path} does not say what this foretaste needs to know ({error}); "
                "go on with the version that began the run"
            ) from error


def _training_histories(dataset: Dataset, device: torch.device) -> HistoryTensors:
    """The training part on a device; TrainingError where it is empty."""
    train = dataset.train
    if train.num_interactions == 0:
        raise TrainingError(f"{dataset.path}: the training part is empty, nothing to learn from")
    return to_device(train, device)
