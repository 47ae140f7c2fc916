"""Train a model, resume a training: the public functions of training."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from foretaste._util.formatting import short_repr
from foretaste._util.settings import given_or_default, validate
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.request import PrepareRequest
from foretaste.errors import RunError, SettingError
from foretaste.models.config import ModelConfig
from foretaste.ops.device import computing_with
from foretaste.runs.config import DatasetReference, RunConfig
from foretaste.runs.places import (
    check_room,
    default_run_name,
    place_to_train,
    resume_command,
    unused_run_path,
)
from foretaste.runs.run import Run, dataset_of
from foretaste.training.auto import (
    check_order,
    derived_settings,
    make_resumed_request,
    resolve_config,
    resolve_sizes,
)
from foretaste.training.callbacks import Callback
from foretaste.training.config import (
    LogConfig,
    PretrainingConfig,
    TrainingConfig,
    acting,
)
from foretaste.training.features import check_features
from foretaste.training.logs import check_logs
from foretaste.training.request import TrainRequest
from foretaste.training.search import chosen_settings
from foretaste.training.strategy import ALONE, Strategy, strategy_here
from foretaste.training.trainer import Trainer, make_trainer
from foretaste.training.warm_start import record_of_start, weights_of_start

if TYPE_CHECKING:
    from foretaste.keywords import ModelName, TrainKeywords


def train(
    model: ModelName,
    dataset: Dataset | Path | str | Any,
    *,
    items: Any = None,
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
    **settings: Unpack[TrainKeywords],
) -> Run:
    """Train ``model`` on ``dataset`` and return the run: its best weights, settings and metrics.

    Settings may be given by name, as in ``train("vae", data, epochs=20, hidden=[200])``. They
    override a config's settings. ``seed`` is the training's, not the split's.

    Args:
        model: one of `foretaste.models.registry.MODEL_NAMES`.
        dataset: a prepared dataset or its directory. Anything else that `foretaste.prepare` takes
            is prepared first, under ``datasets/``.
        items: if ``dataset`` is prepared first, the titles and other columns of items, as in
            `foretaste.prepare`.
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
            unfinished training there resumes if it asked for the same: model, settings, first
            weights and dataset.
        overwrite: replace the run at ``run`` once the new one is finished. Until then the new run
            is in ``RUN.next``, where a training of the same request resumes, and the old one
            answers. Files at the places in ``logs`` are replaced when the training begins.
        logs: files to write beside the run's own log.
        callback: gets every event of the training; by default a display on stderr, with bars on a
            terminal and plain lines elsewhere. `foretaste.training.Callback()` shows nothing.
        threads: CPU threads of the training, of each rank; as many as PyTorch takes unless given.
        settings: fields of these configs and, if ``dataset`` is prepared first, of `PrepareConfig`.

    Raises SettingError for settings out of range, TrainingError if there is nothing to learn or
    the loss diverges, UnsupportedError if the model would not fit the machine or needs an order
    that the data have not, and RunError if ``run`` is taken or cannot be written.
    Raises Interrupted, a KeyboardInterrupt, after Ctrl-C, SIGTERM or SIGHUP. An error before the
    training leaves nothing behind; after one in the training itself, `resume` continues.
    """
    request = TrainRequest.of(
        model,
        dataset,
        items=items,
        model_config=model_config,
        config=config,
        start_from=start_from,
        pretraining=pretraining,
        needs_features=needs_features,
        run=run,
        runs_root=runs_root,
        overwrite=overwrite,
        logs=logs,
        threads=threads,
        **settings,
    )
    return train_run(request, callback)


def train_run(request: TrainRequest, callback: Callback | None = None) -> Run:
    """Carry out a request; returns the run. `train` says what is raised and what ``callback`` is.

    An unfinished run of an equal request at the request's place is resumed.
    """
    callback = validate("callback", callback, Callback | None)
    with computing_with(request.threads), strategy_here() as strategy:
        if request.model_config.parallel is not None:
            return _train(request, callback, strategy)
        # The other ranks wait, however long a fit takes, and open the run that the first has made.
        return strategy.open_on_all(lambda: _train(request, callback, ALONE), Run.open)


def _train(request: TrainRequest, callback: Callback | None, strategy: Strategy) -> Run:
    """Begin the training of a request, or resume the unfinished one at its place."""
    # Check everything before creating the run, so that an error leaves no files.
    path, begun = strategy.on_main(lambda: _place_of(request))
    with show_training(callback if strategy.is_main else Callback(), request.config) as display:
        data = partial(open_data, request.data, display)
        dataset = strategy.open_on_all(data, open_dataset)
        same = strategy.on_main(lambda: _same_of(begun, request, dataset))
        if same is None:
            trainer, run = _begin(request, path, dataset, display, strategy)
            with _lock(run, strategy):
                # Another process may have resumed the run before this one had its lock.
                if not strategy.on_main(lambda: run.is_finished):
                    trainer.train(run, display)
                return _replace_earlier(run, strategy)
        run = strategy.open_on_all(lambda: Run.open(same), Run.open)
        display.resuming(run.path)
        with _lock(run, strategy):
            return _resume_run(run, request, dataset, display, strategy)


def _place_of(request: TrainRequest) -> tuple[str | None, list[str]]:
    """Check the request's place and logs. Returns the directory to train in, or None for a new
    name, and the directories of runs there that are not finished, or not in their place."""
    place, overwrite = request.run, request.overwrite
    unfinished = None if place is None or overwrite else Run.unfinished(place)
    if unfinished is not None:
        return str(place), [str(unfinished.path)]
    check_logs(request)
    if place is None:
        return None, []
    path = place_to_train(place, overwrite=overwrite)
    for start in request.starts().values():
        if start.resolve() == path.resolve():
            raise RunError(
                f"{start} has the weights that the training starts from, and the new run is "
                "trained there; rename it, or choose another directory"
            )
    begun = (Run.next(place), Run.unfinished(place)) if overwrite else ()
    return str(path), [str(run.path) for run in begun if run is not None]


def _same_of(begun: Sequence[str], request: TrainRequest, dataset: Dataset) -> str | None:
    """Return the first of these runs that was begun by the same request; None without one. RunError
    if a run of another request may not be replaced."""
    # A run that is gone was removed, or moved to its place, during the preparation.
    for run in map(Run.open, filter(os.path.exists, begun)):
        if (difference := _difference(run, request, dataset)) is None:
            return str(run.path)
        if not request.overwrite:
            raise RunError(
                f"{run.path} has an unfinished training of other settings: {difference}; resume "
                f"that one by {resume_command(run.path)}, replace it with --overwrite "
                "(overwrite=True in Python), or choose another directory"
            )
    check_logs(request)  # `_place_of` checks no logs if a run is to be resumed
    return None


def open_data(request: PrepareRequest, callback: Callback) -> Dataset:
    """Return the dataset of a request; prepare raw interactions first and tell the callback."""
    if request.is_prepared:
        return request.open_prepared()
    from foretaste.data.preparation import prepare_dataset  # which a prepared dataset needs not

    dataset = prepare_dataset(request, callback.preparing)
    callback.prepared(", ".join(request.sources), dataset)
    return dataset


def _begin(
    request: TrainRequest,
    path: str | None,
    dataset: Dataset,
    display: Callback,
    strategy: Strategy,
) -> tuple[Trainer, Run]:
    """Return a new run, at ``path`` or with a new name, and its trainer."""
    device = strategy.device(request.config.device)
    check_order(request.model, request.model_config, dataset)
    check_features(request.model_config, dataset, request.needs_features)
    config = resolve_config(request, dataset, str(device))
    began = time.perf_counter()
    search = chosen_settings(request, dataset, device, display.fitting)
    search_s = time.perf_counter() - began - (search.fitted.fit_s if search.fitted else 0.0)
    found = resolve_sizes(
        replace(request.model_config, **search.record.get("settings", {})), dataset
    )
    resolved = replace(request, model_config=found, config=config)
    trainer = make_trainer(resolved, dataset, strategy, search.fitted)
    trainer.search_s = search_s if search.record else 0.0
    record = _record(trainer, request, trainer.begin(), search.record)
    made = partial(_made_run, record, trainer, request, None if path is None else Path(path))
    return trainer, strategy.open_on_all(made, Run.open)


def _replace_earlier(run: Run, strategy: Strategy) -> Run:
    """Move a finished run to the place of the run that it replaces, if any; returns the run."""
    if run.place == run.path:
        return run
    strategy.on_main(run.take_place)
    return Run(run.place, run.config)


def _record(
    trainer: Trainer,
    request: TrainRequest,
    start: Mapping[str, Any],
    search: Mapping[str, Any],
) -> RunConfig:
    """Return the config of a run: the request, and the settings as they are."""
    kind, given = type(request.model_config), asdict(request.model_config)
    own, chosen = asdict(trainer.model.config), asdict(trainer.request.config)
    by_size = {name: value for name, value in own.items() if value != given[name]}
    if not kind.has_epochs:
        chosen = {name: chosen[name] for name in ("device", "candidates")}
    return RunConfig(
        model=trainer.model.name,
        model_config=own,
        asked=asdict(acting(request.config, kind)) | {name: given[name] for name in by_size},
        resolved=chosen | by_size | derived_settings(trainer.model),
        dataset=DatasetReference.of(trainer.dataset),
        request=request.record(trainer.dataset.manifest),
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
    """Resume the training of ``run`` from its last saved state to the end; returns the run.

    The settings stay as they were at its start. Without a saved state it begins again in the same
    directory. On the same machine, with as many threads, weights and metrics equal those of a
    training that was never interrupted.

    Args:
        dataset: where the run's dataset is now, if it was moved.
        overwrite: replace the files at the places in ``logs``.
        logs: files to write beside the run's own log, from its first line.
        callback, threads: as in `train`.

    Raises RunError if the run is finished or being trained by another process, its device is not
    here, or one of its files is torn, changed or of another run. Raises DatasetError if its dataset
    is not found or is not the same. Also raises what `train` raises.
    """
    callback = validate("callback", callback, Callback | None)
    with computing_with(threads), strategy_here() as strategy:
        asked = run.path if isinstance(run, Run) else run
        found = strategy.open_on_all(lambda: Run.to_resume(asked), Run.open)
        request = replace(
            TrainRequest.of_run(found),
            overwrite=overwrite,
            logs=given_or_default("logs", logs, LogConfig),
            threads=threads,
        )
        if request.model_config.parallel is not None:
            return _resume(found, request, dataset, callback, strategy)
        return strategy.open_on_all(
            lambda: _resume(found, request, dataset, callback, ALONE), Run.open
        )


def _resume(
    run: Run,
    request: TrainRequest,
    moved: Path | str | None,
    callback: Callback | None,
    strategy: Strategy,
) -> Run:
    """Resume the training of a run, whose dataset may have ``moved``."""
    callback = callback if strategy.is_main else Callback()
    with show_training(callback, request.config) as display, _lock(run, strategy):
        if strategy.is_main:
            check_logs(request)
        if run.place == run.path and strategy.on_main(lambda: run.is_finished):
            if strategy.is_main:
                run.discard_state()  # which a kill may have left
            aim = "to repeat its settings"
            if request.model_config.has_epochs:
                aim = "to train its weights further"
            raise RunError(
                f"{run.path} is finished: there is nothing to resume; {aim}, begin a new run "
                f"with {_options_of_another(run, request)}"
            )
        dataset = strategy.open_on_all(lambda: dataset_of(run, moved), partial(dataset_of, run))
        return _resume_run(run, request, dataset, display, strategy)


def _options_of_another(run: Run, request: TrainRequest) -> str:
    """Return the options of a new training with what a run has."""
    place = shlex.quote(str(run.path))
    has_epochs = request.model_config.has_epochs
    return f"--from {place}" if has_epochs else f"--like {place} DATASET"


def _resume_run(
    run: Run, request: TrainRequest, dataset: Dataset, display: Callback, strategy: Strategy
) -> Run:
    """Train a run, whose lock this process has, to its end, by the settings that it began with. A
    finished run that a kill kept from its place is only moved there."""
    if strategy.on_main(lambda: run.is_finished):
        return _replace_earlier(run, strategy)
    recorded = run.config.resolved["device"]
    try:
        # Another kind of device would give other numbers.
        device = strategy.recorded_device(recorded)
    except SettingError as error:
        raise RunError(
            f"{run.path} was being trained on {recorded}, which is not here; resume where it "
            f"is, or begin a new run with {_options_of_another(run, request)}"
        ) from error
    resolved = make_resumed_request(request, run, str(device))
    make_trainer(resolved, dataset, strategy).train(run, display)
    return _replace_earlier(run, strategy)


def show_training(
    callback: Callback | None, asked: TrainingConfig, searched: Mapping[str, Any] | None = None
) -> AbstractContextManager[Callback]:
    """Return a context with ``callback`` or, without one, a display of the training on stderr.

    ``searched`` are the settings that a search chose.
    """
    if callback is not None:
        return nullcontext(callback)
    # A training that is shown by others needs no rich.
    from rich.console import Console

    from foretaste.training.display import TrainingDisplay

    console = Console(stderr=True, highlight=False, emoji=False)
    return TrainingDisplay(console, asked, searched=searched)


def _lock(run: Run, strategy: Strategy) -> AbstractContextManager[None]:
    """Return the run's lock if this process writes."""
    return run.in_training() if strategy.is_main else nullcontext()


def _made_run(config: RunConfig, trainer: Trainer, request: TrainRequest, path: Path | None) -> Run:
    """Return a new run at ``path``, or with a new name; RunError if a run that replaces another has
    no room beside it."""
    dataset = trainer.dataset
    if path is not None:
        if Run(path, config).place != path:
            check_room(path, trainer.file_bytes())
        return Run.create(path, config=config, dataset=dataset, overwrite=request.overwrite)
    name = default_run_name(config.model, dataset.path.name, datetime.now())
    while True:
        path = unused_run_path(request.runs_root, name)
        try:
            return Run.create(path, config=config, dataset=dataset)
        except RunError:
            # Another training may have taken the name since the check.
            if not path.exists():
                raise


def _difference(begun: Run, request: TrainRequest, dataset: Dataset) -> str | None:
    """Return the first difference between a run's request and another; None without one."""
    there = TrainRequest.of_run(begun).settings()
    there |= {
        "the dataset": begun.config.dataset.digest[:12],
        **weights_of_start(begun.config.start),
    }
    here = request.settings() | {"the dataset": dataset.manifest.digest[:12]}
    here |= weights_of_start(record_of_start(request))
    for name in [*there, *here]:
        old, new = there.get(name), here.get(name)
        if old != new:
            return f"{name} is {short_repr(old)} there, and {short_repr(new)} is asked for"
    return None
