"""The verbs of training: train a model, resume a training, the settings to rerun one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from foretaste._util.keywords import routed
from foretaste._util.settings import checked, fields_of, given_or_default
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_dataset, open_or_prepare
from foretaste.errors import RunError, SettingError
from foretaste.models.config import ModelConfig, SamplingConfig
from foretaste.models.registry import config_class
from foretaste.ops.device import resolve_device
from foretaste.ops.ranks import ALONE, Ranks, joined
from foretaste.runs.config import DatasetReference, RunConfig, recorded
from foretaste.runs.loading import dataset_of
from foretaste.runs.loading import model_config as recorded_model_config
from foretaste.runs.paths import CONFIG, default_run_name, unused_run_path
from foretaste.runs.replacement import make_room, place_to_take, place_to_train
from foretaste.runs.run import Run
from foretaste.training.auto import TrainingPlan, check_settings_act, resolved_config
from foretaste.training.callbacks import Callback, displayed
from foretaste.training.checkpoint import hardware_of
from foretaste.training.config import (
    LogConfig,
    PretrainingConfig,
    TrainingConfig,
)
from foretaste.training.logs import check_logs, replace_run, without_copies
from foretaste.training.trainer import Trainer
from foretaste.training.warm_start import WarmStart, warm_start_arguments


def train(
    model: str,
    dataset: Dataset | Path | str | Any,
    *,
    model_config: ModelConfig | None = None,
    config: TrainingConfig | None = None,
    sampling: SamplingConfig | None = None,
    start_from: Run | Path | str | None = None,
    pretraining: PretrainingConfig | None = None,
    run_path: Path | str | None = None,
    runs_root: Path | str = "runs",
    overwrite: bool = False,
    logs: LogConfig | None = None,
    callback: Callback | None = None,
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
        config: settings of the training. One may serve every model of a comparison: popularity and
            EASE heed its device, candidates and evaluation_batch, and a note names what they
            ignore.
        sampling: negatives and batch layout, for neumf, gmf and mlp only.
        start_from: a run of the same model whose weights to begin with, users and items matched by
            id; those that are new begin as in any training.
        pretraining: for neumf, the runs of GMF and MLP to begin with.
        run_path: the run's directory, new or empty; by default a new one in ``runs_root``.
        overwrite: replace the run at ``run_path``, and what another training wrote where ``logs``
            are to go. All of it stays until the new training is finished.
        logs: files to write beside the run's own log.
        callback: gets every event of the training; by default a display on stderr, with bars on a
            terminal and plain lines elsewhere. `foretaste.training.Callback()` shows nothing.
        settings: fields of these configs and, where ``dataset`` is prepared first, of
            `PrepareConfig`.

    Raises SettingError for settings out of range, TrainingError where there is nothing to learn
    from or the loss diverges, UnsupportedError where the model would not fit the machine, RunError
    where ``run_path`` is taken or cannot be written; Interrupted, a KeyboardInterrupt, after
    Ctrl-C, SIGTERM or SIGHUP. Unless training itself failed, nothing is left behind; if it did,
    `resume` goes on.
    """
    model = checked("model", model, str)
    kind = config_class(model)
    if start_from is not None:
        start_from = checked("start_from", start_from, Run | Path)
        start_from = start_from if isinstance(start_from, Run) else Run.open(start_from)
        if model_config is None and start_from.config.model == model:
            model_config = recorded_model_config(start_from.config, start_from.path / CONFIG)
    config, model_config, sampling, pretraining, logs, preparation = routed(
        train,
        {
            "config": (TrainingConfig, config),
            f"model_config of {model}": (kind, model_config),
            "sampling": (SamplingConfig, sampling),
            "pretraining": (PretrainingConfig, pretraining),
            "logs": (LogConfig, logs),
            "preparation": (PrepareConfig, None),
        },
        settings,
    )
    asked, logs = config or TrainingConfig(), logs or LogConfig()
    overwrite = checked("overwrite", overwrite, bool)
    callback = checked("callback", callback, Callback | None)
    check_logs(logs, has_epochs=kind.has_epochs, overwrite=overwrite)
    check_settings_act(model, asked, sampling, settings)
    if kind.samples_negatives:
        sampling = sampling or SamplingConfig()
    warm_start = WarmStart.of_arguments(model, start_from, pretraining)
    place: Path | None = checked("run_path", run_path, Path | None)
    runs_root = checked("runs_root", runs_root, Path)

    def trained(ranks: Ranks) -> Run:
        path = ranks.on_first(lambda: place and str(place_to_train(place, overwrite=overwrite)))
        device = ranks.device(asked.device)
        opened = _opened(dataset, preparation, ranks)
        chosen = resolved_config(model, asked, opened, sampling, str(device))
        resolved = {"device": chosen.device, "candidates": chosen.candidates}
        settings = model_config or kind()
        trainer = Trainer(opened, model, settings, chosen, sampling, ranks)
        run_config = RunConfig(
            model=model,
            model_config=asdict(settings),
            asked=asdict(asked) | (asdict(sampling) if sampling else {}),
            resolved=asdict(chosen) if kind.has_epochs else resolved,
            seed=asked.seed,
            dataset=DatasetReference.of(opened),
            start=trainer.begin(warm_start),
            hardware=hardware_of(device),
        )
        run = _new_run(run_config, opened, path and Path(path), runs_root, ranks)
        with _training(run, callback, asked, ranks) as shown:
            trainer.train(run, without_copies(logs) if overwrite else logs, shown)
        if not overwrite:
            return run
        return Run.open(ranks.on_first(lambda: str(replace_run(run, logs).path)))

    return _by_ranks(trained, kind)


def resume(
    run: Run | Path | str,
    *,
    dataset_path: Path | str | None = None,
    overwrite: bool = False,
    logs: LogConfig | None = None,
    callback: Callback | None = None,
) -> Run:
    """Go on with the training of ``run`` from its last saved state to the end; returns the run.

    Settings are those it began with. Without a saved state it begins again in the same directory.
    A run that is to replace another takes its place in the end.
    On the same machine, with as many threads, weights and metrics are those of a training that was
    never interrupted.

    Args:
        dataset_path: where the run's dataset is now, if it was moved.
        overwrite: replace, in the end, what another training wrote where ``logs`` are to go; of a
            finished run they are all that is written. A run that replaces another may do so anyway.
        logs: files to write beside the run's own log, from its first line on.
        callback: as in `train`.

    Raises RunError where the run is finished, being trained by another process, its device is not
    here, or one of its files is torn, changed or of another run, DatasetError where its dataset is
    not found or is not the same, and what `train` raises.
    """
    if not isinstance(run, Run):
        run = Run.open(run)
    logs = given_or_default("logs", logs, LogConfig)
    overwrite = checked("overwrite", overwrite, bool)
    callback = checked("callback", callback, Callback | None)

    def resumed(ranks: Ranks) -> Run:
        replaces = place_to_take(run.path) is not None
        replacing = overwrite or replaces
        has_epochs = config_class(run.config.model).has_epochs
        with _training(run, callback, asked_settings(run), ranks) as shown:
            check_logs(logs, has_epochs=has_epochs, run=run, overwrite=replacing)
            if not run.is_finished:
                _check_device(run)
                trainer = _recorded_trainer(run, dataset_of(run, dataset_path), ranks)
                trainer.train(run, without_copies(logs) if replacing else logs, shown)
            else:
                run.discard_state()
                if not replaces and not (overwrite and logs != without_copies(logs)):
                    raise RunError(
                        f"{run.path} is finished: there is nothing to go on with; to train its "
                        "weights further, begin a new run with --from "
                        f"{shlex.quote(str(run.path))}"
                    )
        if not replacing:
            return run
        return Run.open(ranks.on_first(lambda: str(replace_run(run, logs).path)))

    return _by_ranks(resumed, config_class(run.config.model))


def rerun_settings(run: Run) -> dict[str, Any]:
    """The arguments of `train` that repeat a run, for as many epochs as its best one took.

    The values that ``auto`` chose are kept, and so is the warm start; device and kernels are found
    anew; nothing stops the training early. Raises RunError where the run was never finished.
    """
    asked, resolved, path = run.config.asked, run.config.resolved, run.path / CONFIG
    chosen = {**fields_of(TrainingConfig, asked), **fields_of(TrainingConfig, resolved)}
    chosen |= {name: asked[name] for name in ("device", "kernels", "parallel")}
    summaries = [event for event in run.log.read() if event["event"] == "summary"]
    if not summaries:
        raise RunError(
            f"{run.path} was never finished, so its best epoch is not known; "
            "name a run that was trained to the end"
        )
    best_epoch = summaries[-1]["best_epoch"]
    if best_epoch is not None:
        chosen |= {"epochs": best_epoch, "patience": 0, "target": None}
    sampling = fields_of(SamplingConfig, asked)
    return {
        "model": run.config.model,
        "model_config": recorded_model_config(run.config, path),
        "config": recorded(TrainingConfig, chosen, path),
        "sampling": recorded(SamplingConfig, sampling, path) if sampling else None,
        **warm_start_arguments(run.config.start),
    }


def asked_settings(run: Run) -> TrainingConfig:
    """The training settings that a run was given, ``auto`` included."""
    return recorded(TrainingConfig, run.config.asked, run.path / CONFIG)


def _recorded_trainer(run: Run, dataset: Dataset, ranks: Ranks) -> Trainer:
    """Trainer with the settings that a run began with; RunError where its config lacks some."""
    record, path = run.config, run.path / CONFIG
    settings = recorded_model_config(record, path)
    config, sampling = asked_settings(run), None
    try:
        if settings.has_epochs:
            config = _settings_from(TrainingPlan, record.resolved)
        else:
            config = replace(config, device=record.resolved["device"])
        if settings.samples_negatives:
            sampling = _settings_from(SamplingConfig, record.asked)
    except (KeyError, SettingError) as error:
        raise RunError(
            f"{path} does not say what this foretaste needs to know ({error}); "
            "go on with the version that began the run"
        ) from error
    return Trainer(dataset, record.model, settings, config, sampling, ranks)


def _settings_from(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The settings of a kind from ``values``; KeyError where one of them is not there."""
    return kind(**{item.name: values[item.name] for item in fields(kind)})


def _by_ranks(work: Callable[[Ranks], Run], kind: type[ModelConfig]) -> Run:
    """The run of ``work`` by all ranks; of a model that cannot be shared out, by the first."""
    with joined() as ranks:
        if kind.parallel or ranks.size == 1:
            return work(ranks)
        return Run.open(ranks.on_first(lambda: str(work(ALONE).path)))


def _opened(source: Any, preparation: PrepareConfig | None, ranks: Ranks) -> Dataset:
    """The dataset, prepared by the first rank where it is not."""
    if ranks.is_first:
        dataset = None

        def path() -> str:
            nonlocal dataset
            dataset = open_or_prepare(source, preparation)
            return str(dataset.path)

        ranks.on_first(path)
        assert dataset is not None
        return dataset
    return open_dataset(ranks.on_first(str))


@contextmanager
def _training(
    run: Run, callback: Callback | None, asked: TrainingConfig, ranks: Ranks
) -> Iterator[Callback]:
    """Hold the run's lock within and yield what shows the training; nothing but on the first."""
    if not ranks.is_first:
        yield Callback()
        return
    with run.in_training(), displayed(callback, asked) as shown:
        yield shown


def _new_run(
    config: RunConfig, dataset: Dataset, run_path: Path | None, runs_root: Path, ranks: Ranks
) -> Run:
    """The new run, which the first rank makes."""
    made = None

    def path() -> str:
        nonlocal made
        made = _made_run(config, dataset, run_path, runs_root)
        return str(made.path)

    place = ranks.on_first(path)
    return made or Run.open(place)


def _made_run(config: RunConfig, dataset: Dataset, run_path: Path | None, runs_root: Path) -> Run:
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


def _check_device(run: Run) -> None:
    """RunError where the device it was trained on is not here: another has other numbers."""
    device = run.config.resolved["device"]
    try:
        resolve_device(device)
    except SettingError as error:
        raise RunError(
            f"{run.path} was being trained on {device}, which is not here; go on where it is, or "
            f"begin a new run with --from {shlex.quote(str(run.path))}"
        ) from error
