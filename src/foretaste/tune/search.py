"""The verb ``tune_model``: searches the settings of a model, with one training per trial."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from foretaste._util.memory import was_refused
from foretaste._util.settings import Count, Range, check_settings, non_defaults
from foretaste.data.dataset import Dataset
from foretaste.data.request import PrepareRequest
from foretaste.errors import SettingError, TrainingError, UnsupportedError
from foretaste.evaluation.config import parse_metric
from foretaste.measure.evaluate_runs import evaluate_run
from foretaste.models.config import Between, ModelConfig, SearchSpace
from foretaste.models.registry import MODELS, config_class
from foretaste.ops.device import computing_with, resolve_device
from foretaste.runs.files import CONFIG
from foretaste.runs.run import Run
from foretaste.training.api import open_data, show_training
from foretaste.training.auto import (
    check_order,
    resolve_config,
    resolve_sizes,
    selected_metric,
)
from foretaste.training.callbacks import Callback, Callbacks
from foretaste.training.config import TrainingConfig, acting, applies
from foretaste.training.request import TrainRequest
from foretaste.training.search import chosen_settings
from foretaste.tune.config import SEARCHES, TRIALS
from foretaste.tune.directory import finished_run, trainings_at, write_tables
from foretaste.tune.trials import Search, Trial

if TYPE_CHECKING:
    from foretaste.keywords import ModelName, TrainKeywords
    from foretaste.tune.study import Study


def tune_model(
    model: ModelName,
    dataset: Dataset | Path | str | Any,
    *,
    trials: int = TRIALS,
    time_s: float | None = None,
    model_config: ModelConfig | None = None,
    config: TrainingConfig | None = None,
    output: Path | str | None = None,
    callback: Callback | None = None,
    threads: int | None = None,
    **settings: Unpack[TrainKeywords],
) -> Search:
    """Search settings of ``model`` for ``dataset`` with Optuna; returns the trials.

    Each trial is a training, and its value is its best validation metric. The first trial has the
    settings that `train` chooses, and TPE proposes the others. A trial below the median of earlier
    ones is stopped. The test part decides nothing. After an interruption, a call with the same
    arguments resumes; with more ``trials`` it continues a finished search.

    Args:
        model: a model whose config has a ``search_space``.
        dataset: as in `train`; with a validation part.
        trials: number of trials in all.
        time_s: seconds after which no further trial begins.
        model_config, config: as in `train`.
        output: directory of the runs, the trials, and their table as Markdown, CSV and JSON; by
            default ``searches/MODEL-NAME`` with the dataset's name.
        callback: as in `train`; gets the events of every training.
        threads: as in `train`.
        settings: fields of these configs by name. A setting that is given by name, or differs from
            its default in a config, is the same in every trial.

    Raises MissingExtraError without Optuna; SettingError if nothing is left to search, if there is
    no validation part, or if ``output`` was begun with other settings or holds other files;
    TrainingError if every trial failed; UnsupportedError if the model needs an order and the data
    have none.
    """
    request = TuneRequest.of(
        model,
        dataset,
        trials=trials,
        time_s=time_s,
        output=output,
        model_config=model_config,
        config=config,
        threads=threads,
        **settings,
    )
    return search_settings(request, callback)


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """The request of `search_settings`; the command line and `tune_model` make the same one."""

    train: TrainRequest
    """The training of every trial, but for the searched settings."""

    given: tuple[str, ...] = ()
    """Settings that are the same in every trial, even if they have their defaults."""

    trials: Count = TRIALS
    """Number of trials in all."""

    time_s: Annotated[float, Range(above=0)] | None = None
    """Seconds after which no further trial begins."""

    output: Path | None = None
    """Directory of the search; by default ``searches/MODEL-NAME`` with the dataset's name."""

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def of(cls, model: str, dataset: Any, **keywords: Any) -> TuneRequest:
        """Return the request of the keywords of `tune_model`."""
        names = ("trials", "time_s", "output")
        own = {name: keywords.pop(name) for name in names if name in keywords}
        train = TrainRequest.of(model, dataset, verb="tune_model", **keywords)
        settings = vars(train.config) | vars(train.model_config)
        return cls(train=train, given=tuple(sorted(keywords.keys() & settings.keys())), **own)


def search_settings(search: TuneRequest, callback: Callback | None = None) -> Search:
    """Carry out a request; returns the trials. `tune_model` says what is raised."""
    began, request = time.monotonic(), search.train
    with show_training(callback, request.config) as shown:
        data = open_data(request.data, shown)
    check_validation(data)
    check_order(request.model, request.model_config, data)
    request = replace(
        request,
        data=PrepareRequest(source=data),
        runs_root=search.output or SEARCHES / f"{request.model}-{data.path.name}",
    )
    values = {**asdict(request.config), **asdict(request.model_config)}
    given = _given_settings(request) | {name: values[name] for name in search.given}
    space = _space(request, data, given)
    ranges = {
        name: f"searched from {values.low} to {values.high}"
        if isinstance(values, Between)
        else f"searched among {values}"
        for name, values in space.items()
    }
    about = {"model": request.model, "dataset": data.manifest.digest, **values, **ranges}

    # Import Optuna before creating the directory, so that without Optuna nothing is written.
    from foretaste.tune.study import open_study

    path, seed = request.runs_root, request.config.seed
    with (
        computing_with(request.threads),
        trainings_at(path, about),
        open_study(
            path, space, seed, lambda: _first_settings(request, data, space, callback)
        ) as study,
    ):
        # What `train` would choose beside the searched settings is the same in every trial, and
        # in the command that repeats the best one. No trial chooses again.
        common = {name: value for name, value in study.first.items() if name not in space}
        trial = replace(request, model_config=replace(request.model_config, **common))
        if applies("search", type(trial.model_config)):
            # For other models the display would say that the model ignores the setting.
            trial = replace(trial, config=replace(trial.config, search=False))
        while len(study.finished) < search.trials:
            _try_next(study, trial, data, callback)
            if search.time_s is not None and time.monotonic() - began >= search.time_s:
                break
        found = _result(study, trial, data, given | _given_settings(trial))
        if not any(one.state == "complete" for one in found.trials):
            raise TrainingError(f"every trial in {path} failed: {found.trials[0].reason}")
        write_tables(path, found.grid(), found.notes(), found.rows())
        return found


def check_validation(data: Dataset) -> None:
    """Raise SettingError for data without a validation part."""
    if not data.has_split("validation"):
        raise SettingError(
            f"{data.path} has no validation part to choose settings by; prepare it again with "
            "--validation hold-out (validation='hold-out' in Python)"
        )


def _given_settings(request: TrainRequest) -> dict[str, Any]:
    """Return the settings that differ from their defaults and have an effect."""
    kind = type(request.model_config)
    return {**non_defaults(acting(request.config, kind)), **non_defaults(request.model_config)}


def _first_settings(
    request: TrainRequest, data: Dataset, space: SearchSpace, callback: Callback | None
) -> dict[str, Any]:
    """Return the settings of the first trial, as `train` chooses them: by a few fits on the
    validation part, and by rules. They are those of ``space``, and others that these fits
    choose."""
    device = resolve_device(request.config.device)
    with show_training(callback, request.config) as shown:
        search = chosen_settings(request, data, device, shown.fitting)
    found: dict[str, Any] = search.record.get("settings", {})
    model = resolve_sizes(replace(request.model_config, **found), data)
    resolved = resolve_config(replace(request, model_config=model), data, str(device))
    usual = asdict(resolved) | asdict(model) | model.resolved_settings
    return found | {name: usual[name] for name in space}


def _space(request: TrainRequest, data: Dataset, given: Mapping[str, Any]) -> SearchSpace:
    """Return the settings to search: ranges that act beside the given settings, and choices that
    fit them. If the model has ``ignore_weights`` and the interactions have weights, it is among
    them.

    Raises SettingError if there are none.
    """
    whole = type(request.model_config).search_space
    if data.manifest.mean_weight is not None and hasattr(request.model_config, "ignore_weights"):
        whole = whole | {"ignore_weights": (False, True)}
    space: SearchSpace = {}
    for name, values in whole.items():
        if name in given:
            continue
        if isinstance(values, Between):
            if values.only is None or getattr(request.model_config, values.only):
                space[name] = values
            continue
        fitting = []
        for one in values:
            with suppress(SettingError):  # the given settings refuse this choice
                request.with_settings(**{name: one})
                fitting.append(one)
        if len(fitting) > 1:
            space[name] = tuple(fitting)
    if not space:
        able = ", ".join(name for name in MODELS if config_class(name).search_space)
        why = "every setting worth it is given" if whole else f"of {able}"
        raise SettingError(f"{request.model} has no settings to search: {why}")
    return space


def _run_path(request: TrainRequest, number: int) -> Path:
    return request.runs_root / f"trial-{number:03}"


def _try_next(
    study: Study, request: TrainRequest, data: Dataset, callback: Callback | None
) -> None:
    """Train with the settings of the next trial, and record its value, or why it ended."""
    from foretaste.tune.study import Pruned, Pruning

    trial = study.next_trial()
    path, searched = _run_path(request, trial.number), study.settings(trial)
    try:
        request = replace(request.with_settings(**searched), run=path)
    except SettingError as error:  # choices that contradict each other
        study.fail(trial, str(error))
        return
    select_by = selected_metric(request.config, data.manifest.protocol)
    try:
        with show_training(callback, request.config, searched) as shown:
            run = finished_run(request, Callbacks(shown, Pruning(trial, select_by)))
        study.complete(trial, _value(run, data, request.config, select_by))
    except Pruned:
        Run.open(path).discard_state()
        study.prune(trial)
    except Exception as error:
        # Other errors, such as a full disk, are not the settings' fault: they end the search, and
        # the trial is resumed later.
        if not isinstance(error, TrainingError | UnsupportedError) and not was_refused(error):
            raise
        if (path / CONFIG).exists():
            Run.open(path).discard_state()
        study.fail(trial, str(error))


def _value(run: Run, data: Dataset, config: TrainingConfig, select_by: str) -> float:
    """Return the validation metric of a run's weights."""
    value = run.log.read()[-1]["best_value"]
    if value is not None:
        return float(value)
    found = evaluate_run(
        run,
        data,
        split="validation",
        device=config.device,
        candidates=config.candidates,
        evaluation_batch=config.evaluation_batch,
        k=[parse_metric(select_by)[1]],
    )
    return found[select_by]


def _result(study: Study, request: TrainRequest, data: Dataset, given: Mapping[str, Any]) -> Search:
    """Return the finished trials."""
    return Search(
        path=request.runs_root,
        model=request.model,
        dataset=data.path,
        select_by=selected_metric(request.config, data.manifest.protocol),
        fixed=given,
        trials=tuple(
            Trial(
                number=one.number,
                settings=study.settings(one),
                state={"FAIL": "failed"}.get(one.state.name, one.state.name.lower()),
                value=next(reversed(one.intermediate_values.values()), None)
                if one.value is None
                else one.value,
                run=_run_path(request, one.number),
                reason=one.user_attrs.get("reason"),
            )
            for one in study.finished
        ),
    )
