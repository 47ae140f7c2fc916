"""From a prepared dataset to a run: build, fit, keep the best epoch, judge it on the test part."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from foretaste.data.dataset import Dataset
from foretaste.data.preparation import open_or_prepare
from foretaste.errors import RunError, SettingError, TrainingError
from foretaste.evaluation.scoring import to_device
from foretaste.models.base import ClosedFormModel, NeuralModel
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.registry import build_model, config_class
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.config import DatasetReference, RunConfig
from foretaste.runs.run import Run, default_run_name, unused_run_path
from foretaste.training.batches import Batches, HistoryBatches, InteractionBatches
from foretaste.training.config import TrainingConfig
from foretaste.training.job import train_closed_form, train_neural
from foretaste.training.judging import Judging
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.progress import Progress
from foretaste.training.resolve import TrainingPlan, TrainingSize, resolve

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SAMPLING_MODELS = ("neumf", "gmf", "mlp")
"""Models that learn from sampled negatives."""

PRODUCTLESS_MODELS = ("gmf", "popularity", "ease")
"""Models for which the precision of training changes nothing."""


def train(
    model: str,
    dataset: Dataset | Path | str | Any,
    *,
    model_config: DataclassInstance | None = None,
    config: TrainingConfig | None = None,
    sampling: SamplingConfig | None = None,
    run_path: Path | str | None = None,
    runs_root: Path | str = "runs",
    progress: Progress | None = None,
) -> Run:
    """Train ``model`` on ``dataset`` and return the run: its best weights, settings and metrics.

    Args:
        model: one of `foretaste.models.registry.MODEL_NAMES`.
        dataset: a prepared dataset or its directory; anything else `foretaste.prepare` takes is
            prepared first, under ``datasets/``.
        model_config: settings of the model; its defaults if not given.
        config: how to train; popularity and EASE heed its device and candidates only.
        sampling: negatives and batch layout, for neumf, gmf and mlp only.
        run_path: the run's directory, which must not exist; by default a new one in ``runs_root``.

    Raises SettingError for settings out of range, TrainingError where there is nothing to learn
    from or the loss diverges, UnsupportedError where the model would not fit the machine, RunError
    where ``run_path`` exists. Unless training itself failed, nothing is left behind.
    """
    asked = config or TrainingConfig()
    settings = _checked_settings(model, model_config, asked)
    sampling = _checked_sampling(model, sampling)
    device = resolve_device(asked.device)
    if not isinstance(dataset, Dataset):
        dataset = open_or_prepare(dataset)
    histories = _training_histories(dataset, device)
    network = build_model(model, settings, len(histories), histories.num_items).to(device)
    network.count_items(histories)
    progress = progress or Progress()
    judging = Judging(dataset, asked.candidates, asked.validation_users, progress)
    if asked.target is not None and judging.selection_split is None:
        raise SettingError(
            f"target is {asked.target}, but {dataset.path} holds nothing out to measure it on "
            f"(protocol {dataset.manifest.protocol}); leave out --target or prepare another split"
        )
    if isinstance(network, ClosedFormModel):
        network.check_fits()
        resolved = {"device": str(device), "candidates": asked.candidates}
    else:
        plan = _plan(asked, dataset, sampling, device)
        precision = PrecisionPolicy(
            precision=plan.precision, device=device, loss_scale=plan.loss_scale
        )
        resolved = asdict(plan)
    run_config = RunConfig(
        model=model,
        model_config=asdict(settings),
        asked=asdict(asked) | (asdict(sampling) if sampling else {}),
        resolved=resolved,
        seed=asked.seed,
        dataset=DatasetReference.of(dataset),
    )
    run = _new_run(run_config, dataset, run_path, Path(runs_root))
    if isinstance(network, ClosedFormModel):
        train_closed_form(run, network, histories, judging)
    else:
        assert isinstance(network, NeuralModel)
        batches = _batches(histories, sampling, plan)
        train_neural(run, network, batches, plan, precision, judging)
    return run


def _checked_settings(
    model: str, given: DataclassInstance | None, asked: TrainingConfig
) -> DataclassInstance:
    expected = config_class(model)
    if given is not None and not isinstance(given, expected):
        raise SettingError(
            f"{model} takes {expected.__name__} as its settings, not {type(given).__name__}"
        )
    if asked.precision != "fp32" and model in PRODUCTLESS_MODELS:
        raise SettingError(
            f"precision is {asked.precision}, but {model} has no large products to compute in it; "
            "use fp32"
        )
    settings: DataclassInstance = given or expected()
    return settings


def _training_histories(dataset: Dataset, device: torch.device) -> HistoryTensors:
    train = dataset.train
    if train.num_interactions == 0:
        raise TrainingError(f"{dataset.path}: the training part is empty, nothing to learn from")
    return to_device(train, device)


def _plan(
    asked: TrainingConfig, dataset: Dataset, sampling: SamplingConfig | None, device: torch.device
) -> TrainingPlan:
    manifest = dataset.manifest
    size = TrainingSize(
        num_interactions=dataset.train.num_interactions,
        num_users=manifest.num_train_users,
        protocol=manifest.protocol,
    )
    samples_each = 1 + sampling.negatives if sampling else None
    return resolve(asked, size, samples_per_interaction=samples_each, device=str(device))


def _batches(
    histories: HistoryTensors, sampling: SamplingConfig | None, plan: TrainingPlan
) -> Batches:
    if sampling is None:
        return HistoryBatches(histories, plan.batch_size, plan.seed)
    return InteractionBatches(histories, sampling, plan.batch_size, plan.seed)


def _checked_sampling(model: str, sampling: SamplingConfig | None) -> SamplingConfig | None:
    if model in SAMPLING_MODELS:
        return sampling or SamplingConfig()
    if sampling is not None:
        raise SettingError(
            f"{model} samples no negatives: negatives, verified_negatives and batch_layout belong "
            f"to {', '.join(SAMPLING_MODELS)}"
        )
    return None


def _new_run(
    config: RunConfig, dataset: Dataset, run_path: Path | str | None, runs_root: Path
) -> Run:
    if run_path is not None:
        return Run.create(run_path, config=config, dataset=dataset)
    name = default_run_name(config.model, dataset.path.name, datetime.now())
    while True:
        path = unused_run_path(runs_root, name)
        try:
            return Run.create(path, config=config, dataset=dataset)
        except RunError:
            # Another training may have taken the name meanwhile.
            if not path.exists():
                raise
