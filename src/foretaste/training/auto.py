"""The plan of a training: a number for every ``auto``. Also reads the plan of an earlier run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from foretaste._util.settings import Count
from foretaste.data.dataset import Dataset, Split
from foretaste.data.manifest import Manifest
from foretaste.errors import SettingError, UnsupportedError
from foretaste.evaluation.config import OF_LISTS, default_metric, metric_name, parse_metric
from foretaste.evaluation.evaluator import no_new_targets
from foretaste.models.base import Implementation, IterativeModel, RecommenderModel
from foretaste.models.config import ModelConfig, TrainingSize
from foretaste.models.registry import model_class
from foretaste.ops.device import computes_tf32
from foretaste.runs.files import CONFIG
from foretaste.runs.run import Run, model_config
from foretaste.training.config import (
    LearningRateSchedule,
    Precision,
    TrainingConfig,
    acting,
)
from foretaste.training.request import CHANGE_NO_RESULT, TrainRequest


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(TrainingConfig):
    """The settings that a training follows: those asked for, without any ``auto`` left."""

    epochs: Count
    batch_size: Count
    learning_rate: float
    learning_rate_schedule: LearningRateSchedule
    beta1: float
    beta2: float
    ema: float
    eval_every: Count
    patience: int
    precision: Precision
    kernels: Implementation

    def evaluates(self, epoch: int) -> bool:
        """Return whether ``epoch`` (from 1) ends with an evaluation."""
        is_due = epoch > self.eval_after and epoch % self.eval_every == 0
        return is_due or epoch == self.epochs

    @property
    def chooses_epoch(self) -> bool:
        """Whether an epoch before the last is evaluated, so that its weights may be kept."""
        return any(self.evaluates(epoch) for epoch in range(1, self.epochs))

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """``learning_rate`` at an update, counted from 0, if it follows a schedule."""
        if self.learning_rate_schedule == "constant":
            return {}
        # Half a cosine from the rate to 0 (Loshchilov & Hutter 2017, arXiv 1608.03983, equation 5,
        # without restarts). A function of the update alone: a resumed training has the same rates.
        done = update / ((self.schedule_epochs or self.epochs) * updates_per_epoch)
        return {"learning_rate": self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))}


def resolve(
    config: TrainingConfig,
    model: type[IterativeModel],
    size: TrainingSize,
    *,
    model_config: ModelConfig,
    device: str,
) -> TrainingPlan:
    """Return the plan for ``config``, a model and data of that size on the found ``device``."""
    chosen: dict[str, Any] = {"ema": 0.0, "learning_rate_schedule": "constant"}
    chosen["kernels"] = "chunked"
    if config.batch_size != "auto":
        size = replace(size, batch_size=config.batch_size)
    # Patience or a target would end a falling rate too soon.
    stops_early = config.patience not in ("auto", 0) or config.target is not None
    constant_rate = config.learning_rate_schedule == "constant" or stops_early
    size = replace(size, constant_rate=constant_rate)
    sized = model_config.resolved(size.num_items)
    chosen |= model.auto_settings(size, sized)
    # This holds for training only: ranked scores always come from exact products.
    is_rounded = sized.has_large_products and computes_tf32(torch.device(device))
    # In tf32 NeuMF's kernel takes more shared memory than any GPU has: 393,216 bytes on an H200.
    rounded = "bf16" if config.kernels == "triton" else "tf32"
    chosen["precision"] = rounded if is_rounded else "fp32"
    if config.learning_rate_schedule == "cosine":
        if config.epochs == "auto" and chosen["learning_rate_schedule"] == "constant":
            raise SettingError(
                "learning_rate_schedule is cosine, which falls to 0 over all epochs, and epochs is "
                "auto; say how many, such as twice the best epoch of a constant rate"
            )
        chosen["patience"] = 0
    asked = {name: value for name, value in asdict(config).items() if value != "auto"}
    # What was asked for wins over what the sizes choose.
    values = chosen | asked | {"device": device}
    values["select_by"] = selected_metric(config, size.protocol)
    if config.kernels == "triton" and device == "cpu":
        raise SettingError(
            "kernels is triton, whose kernels are for NVIDIA GPUs, and the device is the CPU; "
            "leave it out"
        )
    return TrainingPlan(**values)


def selected_metric(config: TrainingConfig, protocol: str) -> str:
    """Return the metric that chooses the best epoch: from ``config``, else by the protocol."""
    if config.select_by == "auto":
        return default_metric(protocol)
    kind, length = parse_metric(config.select_by)
    if kind in OF_LISTS and kind != "coverage":
        raise SettingError(
            f"select_by is {kind}@{length}, which says nothing of held-out items; use one that "
            "does, such as ndcg@10, and see foretaste evaluate --more for the others"
        )
    if kind == "coverage" and config.candidates != "full":
        raise SettingError(
            f"select_by is coverage@{length}, which candidates {config.candidates} do not have; "
            "use --candidates full or another metric"
        )
    return metric_name(kind, length)


def check_candidates(dataset: Dataset, candidates: str) -> None:
    """Raise SettingError if ``candidates`` is ``fixed`` and a part to evaluate has none, and
    DatasetError if it is ``new`` and a part has no new item."""
    splits: tuple[Split, ...] = ("validation", "test")
    for split in filter(dataset.has_split, splits):
        if candidates == "new" and not dataset.manifest.has_new_targets(split):
            raise no_new_targets(split)
        if candidates == "fixed" and not dataset.has_candidates(split):
            raise SettingError(
                f"candidates is fixed, and none came with the {split} part of {dataset.name}; "
                "train with full or sampled-99, and see foretaste evaluate --candidates fixed for "
                "parts that have them"
            )


def resolve_config(request: TrainRequest, dataset: Dataset, device: str) -> TrainingConfig:
    """Return the training's settings with the found device: a `TrainingPlan` if it has epochs."""
    asked, manifest = request.config, dataset.manifest
    holds_out = dataset.has_split("validation") or dataset.has_split("test")
    if asked.target is not None and not holds_out:
        raise SettingError(
            f"target is {asked.target}, but {dataset.name} holds nothing out to measure it on "
            f"(protocol {manifest.protocol}); leave out --target or prepare another split"
        )
    check_candidates(dataset, asked.candidates)
    asked = acting(asked, type(request.model_config))
    kind = model_class(request.model)
    if not issubclass(kind, IterativeModel):
        return replace(asked, device=device)
    size, of_model = training_size(manifest), resolve_sizes(request.model_config, dataset)
    return resolve(asked, kind, size, model_config=of_model, device=device)


def training_size(manifest: Manifest) -> TrainingSize:
    """Return the size of a dataset's training part."""
    return TrainingSize(
        num_interactions=manifest.num_interactions,
        num_users=manifest.num_train_users,
        num_items=manifest.num_items,
        protocol=manifest.protocol,
    )


def resolve_sizes(asked: ModelConfig, dataset: Dataset) -> ModelConfig:
    """Return the model's settings, with a value for each ``auto`` that the data's size decides."""
    manifest = dataset.manifest
    if not manifest.feature_columns:
        asked = asked.without_features()
    items_per_user = manifest.num_interactions / max(1, manifest.num_train_users)
    return asked.resolved(
        asked.num_listed(dataset.manifest.num_items, dataset.manifest.num_listed_items),
        items_per_user,
    )


def derived_settings(model: RecommenderModel) -> dict[str, Any]:
    """Return the settings of a model that the user left open, with the values that they took."""
    given, found = asdict(model.config), model.config.resolved_settings
    if isinstance(model, IterativeModel):
        by_data = {name: v for name, v in model.schedule(0, 1).items() if given.get(name) == "auto"}
        found = found | by_data
    return {name: value for name, value in found.items() if value != given[name]}


def make_resumed_request(request: TrainRequest, run: Run, device: str) -> TrainRequest:
    """Return the request of a run that was begun, with the values that it began with in place of
    ``auto``, on ``device``. Settings that change no result come from the request."""
    config = request.config
    if request.model_config.has_epochs:
        own = {name: getattr(config, name) for name in CHANGE_NO_RESULT}
        begun = {**run.config.resolved, **own}
        config = TrainingPlan(**{item.name: begun[item.name] for item in fields(TrainingPlan)})
    return replace(
        request,
        model_config=model_config(run.config, run.path / CONFIG),
        config=replace(config, device=device),
    )


def check_order(model: str, config: ModelConfig, dataset: Dataset) -> None:
    """Raise UnsupportedError if the model reads the interactions' order and the data have none."""
    if config.uses_order and not dataset.manifest.has_order:
        unread = dataset.manifest.notes.get("order")
        why = f" ({unread})" if unread else ""
        raise UnsupportedError(
            f"{dataset.name}: {model} learns from the order of interactions, and these have "
            f"none{why}; prepare them with a column of times, --time-column (time_column=... in "
            "Python), in lists, --layout lists (layout='lists'), or with --order rows "
            "(order='rows')"
        )
