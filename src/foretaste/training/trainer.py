"""From a prepared dataset to a run: build, fit, keep the best epoch, judge it on the test part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from foretaste._util.keywords import routed
from foretaste._util.settings import checked
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset
from foretaste.data.preparation import open_or_prepare
from foretaste.errors import RunError, SettingError
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.registry import (
    CLOSED_FORMS,
    PRODUCTLESS_MODELS,
    SAMPLING_MODELS,
    config_class,
)
from foretaste.ops.device import resolve_device
from foretaste.runs.config import DatasetReference, RunConfig
from foretaste.runs.paths import default_run_name, unused_run_path
from foretaste.runs.replacement import make_room, place_to_train
from foretaste.runs.run import Run
from foretaste.training.assembly import assemble
from foretaste.training.config import (
    HEEDED_IN_ONE_PASS,
    LogConfig,
    PretrainingConfig,
    TrainingConfig,
)
from foretaste.training.hardware import deciding_hardware
from foretaste.training.judging import check_candidates
from foretaste.training.logs import check_logs, settled, without_copies
from foretaste.training.progress import Progress, watched
from foretaste.training.resolve import TrainingSize, resolve
from foretaste.training.warm_start import settings_to_start_with, warm_start_record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def train(
    model: str,
    dataset: Dataset | Path | str | Any,
    *,
    model_config: DataclassInstance | None = None,
    config: TrainingConfig | None = None,
    sampling: SamplingConfig | None = None,
    start_from: Run | Path | str | None = None,
    pretraining: PretrainingConfig | None = None,
    run_path: Path | str | None = None,
    runs_root: Path | str = "runs",
    overwrite: bool = False,
    logs: LogConfig | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Run:
    """Train ``model`` on ``dataset`` and return the run: its best weights, settings and metrics.

    Settings may be given by name, ``train("vae", data, epochs=20, hidden=[200])``, and go before
    what a config says. ``seed`` is that of the training; the other names belong to one config each.

    Args:
        model: one of `foretaste.models.registry.MODEL_NAMES`.
        dataset: a prepared dataset or its directory; anything else `foretaste.prepare` takes is
            prepared first, under ``datasets/``.
        model_config: settings of the model; if not given those of the run that ``start_from``
            names, else its defaults.
        config: how to train; popularity and EASE heed its device, candidates and evaluation_batch
            only, so that one config may serve every model of a comparison.
        sampling: negatives and batch layout, for neumf, gmf and mlp only.
        start_from: a run of the same model whose weights to begin with, users and items matched by
            id; those that are new begin as in any training.
        pretraining: for neumf, the runs of GMF and MLP to begin with.
        run_path: the run's directory, new or empty; by default a new one in ``runs_root``.
        overwrite: replace the run at ``run_path``, and what another training wrote where ``logs``
            are to go. All of it stays until the new training is finished.
        logs: what to write beside the run's own log.
        progress: who is told how it goes; by default it is shown on stderr, as bars on a terminal
            and as plain lines elsewhere. `foretaste.training.Progress()` shows nothing.
        settings: fields of these configs and, where ``dataset`` is prepared first, of
            `PrepareConfig`.

    Raises SettingError for settings out of range, TrainingError where there is nothing to learn
    from or the loss diverges, UnsupportedError where the model would not fit the machine, RunError
    where ``run_path`` is taken or cannot be written; Interrupted, a KeyboardInterrupt, after
    Ctrl-C, SIGTERM or SIGHUP. Unless training itself failed, nothing is left behind; if it did,
    `resume` goes on.
    """
    model = checked("model", model, str)
    if model_config is None:
        model_config = settings_to_start_with(model, start_from)
    config, model_config, sampling, pretraining, logs, preparation = routed(
        train,
        {
            "config": (TrainingConfig, config),
            f"model_config of {model}": (config_class(model), model_config),
            "sampling": (SamplingConfig, sampling),
            "pretraining": (PretrainingConfig, pretraining),
            "logs": (LogConfig, logs),
            "preparation": (PrepareConfig, None),
        },
        settings,
    )
    asked, logs = config or TrainingConfig(), logs or LogConfig()
    overwrite = checked("overwrite", overwrite, bool)
    check_logs(logs, in_steps=model not in CLOSED_FORMS, overwrite=overwrite)
    _check_fit_the_model(model, asked, sampling, settings)
    if model in SAMPLING_MODELS:
        sampling = sampling or SamplingConfig()
    warm_start = warm_start_record(model, start_from, pretraining)
    if warm_start and model in CLOSED_FORMS:
        raise SettingError(f"{model} is fitted in one pass: it has no first weights to begin with")
    place: Path | None = checked("run_path", run_path, Path | None)
    runs_root = checked("runs_root", runs_root, Path)
    if place is not None:
        place = place_to_train(place, overwrite=overwrite)
    device = resolve_device(asked.device)
    dataset = open_or_prepare(dataset, preparation)
    run_config = RunConfig(
        model=model,
        model_config=asdict(model_config or config_class(model)()),
        asked=asdict(asked) | (asdict(sampling) if sampling else {}),
        resolved=_resolved(model, asked, dataset, sampling, device),
        seed=asked.seed,
        dataset=DatasetReference.of(dataset),
        start=warm_start,
        hardware=deciding_hardware(device),
    )
    training = assemble(run_config, dataset)
    run = _new_run(training.begin(), dataset, place, runs_root)
    with run.in_training(), watched(progress, asked) as told:
        training.carry_out(run, without_copies(logs) if overwrite else logs, told)
    return settled(run, logs) if overwrite else run


def _check_fit_the_model(
    model: str, asked: TrainingConfig, sampling: SamplingConfig | None, by_name: Mapping[str, Any]
) -> None:
    """SettingError for settings that would do nothing."""
    if asked.precision != "fp32" and model in PRODUCTLESS_MODELS:
        raise SettingError(
            f"precision is {asked.precision}, but {model} has no large products to compute in it; "
            "use fp32"
        )
    if sampling is not None and model not in SAMPLING_MODELS:
        raise SettingError(
            f"{model} samples no negatives: negatives, verified_negatives and batch_layout belong "
            f"to {', '.join(SAMPLING_MODELS)}"
        )
    if model in CLOSED_FORMS:
        idle = {field.name for field in fields(TrainingConfig)} - set(HEEDED_IN_ONE_PASS)
        for name in by_name.keys() & idle:
            raise SettingError(
                f"{name} does nothing for {model}, which is fitted in one pass and heeds "
                f"{', '.join(HEEDED_IN_ONE_PASS)}; leave it out, or give it in a config that "
                "serves several models"
            )


def _resolved(
    model: str,
    asked: TrainingConfig,
    dataset: Dataset,
    sampling: SamplingConfig | None,
    device: torch.device,
) -> dict[str, Any]:
    """The settings without any ``auto``, as ``config.json`` keeps them."""
    manifest = dataset.manifest
    holds_out = dataset.has_split("validation") or dataset.has_split("test")
    if asked.target is not None and not holds_out:
        raise SettingError(
            f"target is {asked.target}, but {dataset.path} holds nothing out to measure it on "
            f"(protocol {manifest.protocol}); leave out --target or prepare another split"
        )
    check_candidates(dataset, asked.candidates)
    if model in CLOSED_FORMS:
        return {"device": str(device), "candidates": asked.candidates}
    size = TrainingSize(
        num_interactions=manifest.num_interactions,
        num_users=manifest.num_train_users,
        protocol=manifest.protocol,
    )
    samples_each = 1 + sampling.negatives if sampling else None
    plan = resolve(asked, size, samples_per_interaction=samples_each, device=str(device))
    return asdict(plan)


def _new_run(config: RunConfig, dataset: Dataset, run_path: Path | None, runs_root: Path) -> Run:
    if run_path is not None:
        make_room(run_path)
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
