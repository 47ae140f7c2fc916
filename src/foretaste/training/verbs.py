"""The verbs of training: train a model, resume a training."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from foretaste._util.formatting import shown
from foretaste._util.keywords import routed
from foretaste._util.settings import checked, given_or_default
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_dataset, open_or_prepare
from foretaste.errors import RunError, SettingError
from foretaste.models.config import ModelConfig
from foretaste.models.registry import config_class
from foretaste.ops.device import computing_with
from foretaste.runs.config import DatasetReference, RunConfig
from foretaste.runs.files import CONFIG
from foretaste.runs.places import (
    default_run_name,
    place_to_train,
    resume_command,
    unused_run_path,
)
from foretaste.runs.run import Run, dataset_of
from foretaste.runs.run import model_config as recorded_model_config
from foretaste.training.auto import (
    asked_settings,
    check_order,
    check_settings_act,
    followed_settings,
    recorded_settings,
    resolved_config,
    sized,
)
from foretaste.training.callbacks import Callback, displayed
from foretaste.training.config import (
    LogConfig,
    PretrainingConfig,
    TrainingConfig,
    acting,
)
from foretaste.training.features import check_features
from foretaste.training.logs import check_logs
from foretaste.training.search import chosen_settings
from foretaste.training.strategy import ALONE, Strategy, strategy_here
from foretaste.training.trainer import Trainer, make_trainer
from foretaste.training.warm_start import WarmStart


def train(
    model: str,
    dataset: Dataset | Path | str | Any,
    *,
    model_config: ModelConfig | None = None,
    config: TrainingConfig | None = None,
    start_from: Run | Path | str | None = None,
    pretraining: PretrainingConfig | None = None,
    needs_features: Sequence[str] = (),
    run: Path | str | None = None,
    runs_root: Path | str = "runs",
    overwrite: bool = False,
    logs: LogConfig | None = None,
    callback: Callback | None = None,
    threads: int | None = None,
    **settings: Any,
) -> Run:
    """Train ``model`` on ``dataset`` and return the run: its best weights, settings and metrics.

    Settings may be given by name, as in ``train("vae", data, epochs=20, hidden=[200])``. They win
    over those of a config. ``seed`` is the training's, not the split's.

    Args:
        model: one of `foretaste.models.registry.MODEL_NAMES`.
        dataset: a prepared dataset or its directory. Anything else that `foretaste.prepare` takes
            is prepared first, under ``datasets/``.
        model_config: settings of the model; by default those of the run ``start_from``, else the
            model's defaults.
        config: settings of the training. One config may serve every model of a comparison. Models
            fitted in one pass heed its device, candidates and evaluation_batch, and all but
            popularity its search and select_by; a note names what they ignore.
        start_from: a run of the same model whose weights the training begins with. Users and items
            are matched by id, and new ones begin as in any training.
        pretraining: for neumf, the runs of GMF and MLP to begin with.
        needs_features: columns of features that the dataset must have, as those of a run that is
            repeated.
        run: the run's directory, new or empty; by default a new one in ``runs_root``. An
            unfinished training there goes on where it asked for the same: model, settings, first
            weights and dataset.
        overwrite: replace the run at ``run``, and the files at the places in ``logs``, when the
            training begins. A training that is refused leaves them as they are; one that fails
            later leaves the new, unfinished run.
        logs: files to write beside the run's own log.
        callback: gets every event of the training; by default a display on stderr, with bars on a
            terminal and plain lines elsewhere. `foretaste.training.Callback()` shows nothing.
        threads: CPU threads of the training, of each rank; as many as PyTorch takes unless given.
        settings: fields of these configs and, where ``dataset`` is prepared first, of
            `PrepareConfig`.

    Raises SettingError for settings out of range, TrainingError where there is nothing to learn
    from or the loss diverges, UnsupportedError where the model would not fit the machine or
    needs an order that the data have not, and RunError where ``run`` is taken or cannot be written.
    Raises Interrupted, a KeyboardInterrupt, after Ctrl-C, SIGTERM or SIGHUP. An error before the
    training leaves nothing behind; after one in the training itself, `resume` goes on.
    """
    model = checked("model", model, str)
    kind = config_class(model)
    if start_from is not None:
        start_from = checked("start_from", start_from, Run | Path)
        start_from = start_from if isinstance(start_from, Run) else Run.open(start_from)
        if model_config is None and start_from.config.model == model:
            model_config = recorded_model_config(start_from.config, start_from.path / CONFIG)
    config, model_config, pretraining, logs, preparation = routed(
        train,
        {
            "config": (TrainingConfig, config),
            f"model_config of {model}": (kind, model_config),
            "pretraining": (PretrainingConfig, pretraining),
            "logs": (LogConfig, logs),
            "preparation": (PrepareConfig, None),
        },
        settings,
    )
    asked, logs = config or TrainingConfig(), logs or LogConfig()
    overwrite = checked("overwrite", overwrite, bool)
    callback = checked("callback", callback, Callback | None)
    check_settings_act(model, settings)
    warm_start = WarmStart.of_arguments(model, start_from, pretraining)
    place: Path | None = checked("run", run, Path | None)
    runs_root = checked("runs_root", runs_root, Path)

    architecture = model_config or kind()

    def place_of_run() -> str | None:
        if overwrite and place is not None:
            # Of a training that failed before its first state, nothing would be left.
            for first in warm_start.runs.values():
                if first.path.resolve() == place.resolve():
                    raise SettingError(
                        f"run {place} is to be replaced, and the training begins with it; name "
                        "another run"
                    )
        if place is not None and not overwrite and Run.unfinished(place) is not None:
            return str(place)
        check_logs(logs, has_epochs=kind.has_epochs, overwrite=overwrite)
        return None if place is None else str(place_to_train(place, overwrite=overwrite))

    def trained(strategy: Strategy) -> Run:
        # What may be refused comes first: until the run is made, an error leaves nothing behind.
        path = strategy.first(place_of_run)
        device = strategy.device(asked.device)
        opened = strategy.opened(lambda: open_or_prepare(dataset, preparation), open_dataset)
        check_order(model, architecture, opened)
        check_features(architecture, opened, needs_features)
        rule = sized(architecture, opened)
        chosen = resolved_config(model, asked, opened, rule, str(device))
        with _displayed(callback, asked, strategy) as shown:
            began = time.perf_counter()
            search = strategy.first(
                lambda: chosen_settings(opened, model, architecture, asked, device, shown.fitting)
            )
            search_s = time.perf_counter() - began
            found = sized(replace(architecture, **search.get("settings", {})), opened)
            # Ranks may find other values for `auto`: tf32 is for GPUs that have it.
            _check_alike(device, model, found, chosen, strategy)
            trainer = make_trainer(opened, model, found, chosen, strategy)
            trainer.search_s = search_s if search else 0.0
            record = _record(trainer, asked, architecture, trainer.begin(warm_start), search)
            run = strategy.opened(
                lambda: _made_run(
                    record, opened, path and Path(path), runs_root, overwrite=overwrite
                ),
                Run.open,
            )
            with _locked(run, strategy):
                trainer.train(run, logs, shown)
        return run

    with computing_with(threads):
        return _carried_out(trained, kind)


def _record(
    trainer: Trainer[Any],
    asked: TrainingConfig,
    architecture: ModelConfig,
    start: Mapping[str, Any],
    search: Mapping[str, Any],
) -> RunConfig:
    """The config of a run: the settings as they were asked for, and as they are."""
    kind, given, own = type(architecture), asdict(architecture), asdict(trainer.model.config)
    chosen = asdict(trainer.config)
    by_size = {name: value for name, value in own.items() if value != given[name]}
    if not kind.has_epochs:
        chosen = {name: chosen[name] for name in ("device", "candidates")}
    return RunConfig(
        model=trainer.model.name,
        model_config=own,
        asked=asdict(acting(asked, kind)) | {name: given[name] for name in by_size},
        resolved=chosen | by_size | followed_settings(trainer.model),
        dataset=DatasetReference.of(trainer.dataset),
        search=search,
        start=start,
        hardware=trainer.hardware,
    )


def resume(
    run: Run | Path | str,
    *,
    dataset: Path | str | None = None,
    overwrite: bool = False,
    logs: LogConfig | None = None,
    callback: Callback | None = None,
    threads: int | None = None,
) -> Run:
    """Go on with the training of ``run`` from its last saved state to the end; returns the run.

    Settings are those it began with. Without a saved state it begins again in the same directory.
    On the same machine, with as many threads, weights and metrics are those of a training that was
    never interrupted.

    Args:
        dataset: where the run's dataset is now, if it was moved.
        overwrite: replace the files at the places in ``logs``.
        logs: files to write beside the run's own log, from its first line on.
        callback, threads: as in `train`.

    Raises RunError where the run is finished or being trained by another process, its device is not
    here, or one of its files is torn, changed or of another run. Raises DatasetError where its
    dataset is not found or is not the same. Also raises what `train` raises.
    """
    logs = given_or_default("logs", logs, LogConfig)
    overwrite = checked("overwrite", overwrite, bool)
    callback = checked("callback", callback, Callback | None)

    with computing_with(threads), strategy_here() as here:
        found = here.opened(lambda: run if isinstance(run, Run) else Run.open(run), Run.open)
        return _carried_out(
            lambda strategy: _resumed(
                found, dataset, logs, callback, strategy, overwrite=overwrite
            ),
            config_class(found.config.model),
        )


def _resumed(
    run: Run,
    dataset_path: Path | str | None,
    logs: LogConfig,
    callback: Callback | None,
    strategy: Strategy,
    *,
    overwrite: bool,
) -> Run:
    """Train the run to its end."""
    has_epochs, place = config_class(run.config.model).has_epochs, shlex.quote(str(run.path))
    another = f"--from {place}" if has_epochs else f"--like {place} DATASET"
    is_finished = strategy.first(lambda: run.is_finished)
    asked = asked_settings(run)
    with _locked(run, strategy), _displayed(callback, asked, strategy) as shown:
        if strategy.writes:
            check_logs(logs, has_epochs=has_epochs, overwrite=overwrite)
        if is_finished:
            if strategy.writes:
                run.discard_state()
            aim = "to train its weights further" if has_epochs else "to repeat its settings"
            raise RunError(
                f"{run.path} is finished: there is nothing to go on with; {aim}, begin a new run "
                f"with {another}"
            )
        dataset = strategy.opened(lambda: dataset_of(run, dataset_path), partial(dataset_of, run))
        recorded = run.config.resolved["device"]
        try:
            # Another kind of device would give other numbers.
            device = strategy.recorded_device(recorded)
        except SettingError as error:
            raise RunError(
                f"{run.path} was being trained on {recorded}, which is not here; go on where it "
                f"is, or begin a new run with {another}"
            ) from error
        settings, config = recorded_settings(run, str(device))
        _check_alike(device, run.config.model, settings, config, strategy)
        trainer = make_trainer(dataset, run.config.model, settings, config, strategy)
        trainer.train(run, logs, shown)
    return run


def _carried_out(work: Callable[[Strategy], Run], kind: type[ModelConfig]) -> Run:
    """Run ``work`` on all ranks, or on the first alone where the model cannot be shared out."""
    with strategy_here() as strategy:
        if kind.parallel is not None:
            return work(strategy)
        # The others wait, however long a fit takes, and open the run that the first has made.
        return strategy.opened(lambda: work(ALONE), Run.open)


def _displayed(
    callback: Callback | None, asked: TrainingConfig, strategy: Strategy
) -> AbstractContextManager[Callback]:
    """The callback that shows a training; one that shows nothing where another process writes."""
    return displayed(callback if strategy.writes else Callback(), asked)


def _locked(run: Run, strategy: Strategy) -> AbstractContextManager[None]:
    """The run's lock, where this process writes."""
    return run.in_training() if strategy.writes else nullcontext()


def _made_run(
    config: RunConfig,
    dataset: Dataset,
    run_path: Path | None,
    runs_root: Path,
    *,
    overwrite: bool,
) -> Run:
    """A new run, or the unfinished one at ``run_path`` that asked for the same."""
    if run_path is not None:
        if not overwrite and (begun := Run.unfinished(run_path)) is not None:
            _check_asked_for_the_same(begun, config)
            return begun
        return Run.create(run_path, config=config, dataset=dataset, overwrite=overwrite)
    name = default_run_name(config.model, dataset.path.name, datetime.now())
    while True:
        path = unused_run_path(runs_root, name)
        try:
            return Run.create(path, config=config, dataset=dataset)
        except RunError:
            # Another training may have taken the name meanwhile.
            if not path.exists():
                raise


def _check_asked_for_the_same(begun: Run, config: RunConfig) -> None:
    """RunError where an unfinished training has another model, settings or data than one asked."""

    def asked_by(one: RunConfig) -> dict[str, Any]:
        asked = {"model": one.model, "the dataset": one.dataset.digest[:12], "the start": one.start}
        document: dict[str, Any] = json.loads(
            json.dumps(asked | dict(one.model_config) | one.settings)
        )
        return document

    here, now = asked_by(begun.config), asked_by(config)
    for name in [*here, *now]:
        if here.get(name) != now.get(name):
            raise RunError(
                f"{begun.path} has an unfinished training of other settings: {name} is "
                f"{shown(here.get(name))} there, and {shown(now.get(name))} is asked for; go on "
                f"with that one by {resume_command(begun.path)}, replace it with --overwrite "
                "(overwrite=True in Python), or choose another directory"
            )


def _check_alike(
    device: torch.device,
    model: str,
    architecture: ModelConfig,
    config: TrainingConfig,
    strategy: Strategy,
) -> None:
    """RankError where those who train have other kinds of devices or other settings."""
    is_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_gpu else torch.backends.cpu.get_cpu_capability()
    settings = {"model": model, **asdict(architecture), **asdict(config)}
    strategy.check_alike(settings | {"device": name})
