"""The verb ``tune_model``: searches the settings of a model, with one training per trial."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foretaste._util.keywords import routed
from foretaste._util.memory import was_refused
from foretaste._util.settings import Count, Range, changed, checked
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_or_prepare
from foretaste.errors import SettingError, TrainingError, UnsupportedError
from foretaste.evaluation.config import parse_metric
from foretaste.models.config import Between, ModelConfig, SearchSpace
from foretaste.models.registry import MODELS, config_class
from foretaste.ops.device import computing_with, resolve_device
from foretaste.report.evaluate_runs import evaluate_run
from foretaste.runs.files import CONFIG
from foretaste.runs.run import Run
from foretaste.training.auto import (
    check_order,
    check_settings_act,
    resolved_config,
    selected_metric,
    sized,
)
from foretaste.training.callbacks import Callback, Callbacks, displayed
from foretaste.training.config import TrainingConfig, acting, acts
from foretaste.training.search import chosen_settings
from foretaste.tune.config import SEARCHES, TRIALS
from foretaste.tune.directory import finished_run, trainings_at, write_tables
from foretaste.tune.trials import Search, Trial

if TYPE_CHECKING:
    from foretaste.tune.study import Study


def tune_model(
    model: str,
    dataset: Dataset | Path | str | Any,
    *,
    trials: int = TRIALS,
    time_s: float | None = None,
    model_config: ModelConfig | None = None,
    config: TrainingConfig | None = None,
    output: Path | str | None = None,
    callback: Callback | None = None,
    threads: int | None = None,
    **settings: Any,
) -> Search:
    """Search settings of ``model`` for ``dataset`` with Optuna; returns the trials.

    Each trial is a training, and its value is its best validation metric. The first trial has the
    settings that `train` chooses, and TPE proposes the others. A trial below the median of earlier
    ones is stopped. The test part decides nothing. After an interruption, a call with the same
    arguments goes on; with more ``trials`` it continues a finished search.

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
    kind = config_class(checked("model", model, str))
    trials = checked("trials", trials, Count)
    time_s = checked("time_s", time_s, Annotated[float, Range(above=0)] | None)
    began = time.monotonic()
    place = checked("output", output, Path | None)
    model_config, config, preparation = routed(
        tune_model,
        {
            f"model_config of {model}": (kind, model_config),
            "config": (TrainingConfig, config),
            "preparation": (PrepareConfig, None),
        },
        settings,
    )
    config = config or TrainingConfig()
    check_settings_act(model, settings)
    data = open_or_prepare(dataset, preparation)
    check_validation(data)
    model_config = model_config or kind()
    check_order(model, model_config, data)
    task = _Task(
        model=model,
        dataset=data,
        model_config=model_config,
        config=config,
        select_by=selected_metric(config, data.manifest.protocol),
        path=place or SEARCHES / f"{model}-{data.path.name}",
        callback=callback,
    )
    given = task.given() | {name: settings[name] for name in settings if name in task.values()}
    space = task.space(given)
    if not space:
        able = [name for name in MODELS if config_class(name).search_space]
        why = "every setting worth it is given" if kind.search_space else f"of {', '.join(able)}"
        raise SettingError(f"{model} has no settings to search: {why}")
    ranges = {
        name: f"searched from {values.low} to {values.high}"
        if isinstance(values, Between)
        else f"searched among {values}"
        for name, values in space.items()
    }
    about = {"model": model, "dataset": data.manifest.digest, **task.values(), **ranges}

    # Imported before the directory is made: without Optuna nothing is written.
    from foretaste.tune.study import open_study

    with (
        computing_with(threads),
        trainings_at(task.path, about),
        open_study(task.path, space, config.seed, lambda: task.first(space)) as study,
    ):
        # What `train` would choose beside the searched settings is the same in every trial, and
        # in the command that repeats the best one. No trial chooses anew.
        common = {name: value for name, value in study.first.items() if name not in space}
        task = replace(
            task,
            model_config=replace(task.model_config, **common),
            # Elsewhere the display would say that the model ignores it.
            config=replace(config, search=False) if acts("search", kind) else config,
        )
        while len(study.finished) < trials:
            task.try_next(study)
            if time_s is not None and time.monotonic() - began >= time_s:
                break
        search = task.result(study, given | task.given())
        if not any(one.state == "complete" for one in search.trials):
            raise TrainingError(f"every trial in {task.path} failed: {search.trials[0].reason}")
        write_tables(task.path, search.grid(), search.notes(), search.rows())
        return search


def check_validation(data: Dataset) -> None:
    """Raise SettingError for data without a validation part."""
    if not data.has_split("validation"):
        raise SettingError(
            f"{data.path} has no validation part to choose settings by; prepare it again with "
            "--validation hold-out (validation='hold-out' in Python)"
        )


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A search: the data, the common settings of all trials, and the directory."""

    model: str
    dataset: Dataset
    model_config: ModelConfig
    config: TrainingConfig
    select_by: str
    path: Path
    callback: Callback | None

    def values(self) -> dict[str, Any]:
        """All settings of a training by name."""
        return {**asdict(self.config), **asdict(self.model_config)}

    def given(self) -> dict[str, Any]:
        """The settings that differ from their defaults and have an effect."""
        kind = type(self.model_config)
        return {**changed(acting(self.config, kind)), **changed(self.model_config)}

    def first(self, space: SearchSpace) -> dict[str, Any]:
        """The settings of the first trial, as `train` chooses them: by a few fits on the validation
        part, and by rules. They are those of ``space``, and others that these fits choose."""
        device = resolve_device(self.config.device)
        made_of = (self.dataset, self.model, self.model_config, self.config, device)
        with displayed(self.callback, self.config) as shown:
            found: dict[str, Any] = chosen_settings(*made_of, shown.fitting).get("settings", {})
        model = sized(replace(self.model_config, **found), self.dataset)
        resolved = resolved_config(self.model, self.config, self.dataset, model, str(device))
        usual = asdict(resolved) | asdict(model) | model.resolved_settings
        return found | {name: usual[name] for name in space}

    def space(self, given: Mapping[str, Any]) -> SearchSpace:
        """The settings to search: ranges that act beside the given settings, and choices that fit
        them. If it takes weights and the interactions have them, ``ignore_weights`` is among them.
        """
        whole = type(self.model_config).search_space
        if self.dataset.manifest.mean_weight is not None and self.model_config.takes_weights:
            whole = whole | {"ignore_weights": (False, True)}
        space: SearchSpace = {}
        for name, values in whole.items():
            if name in given:
                continue
            if isinstance(values, Between):
                if values.only is None or getattr(self.model_config, values.only):
                    space[name] = values
                continue
            fitting = []
            for one in values:
                with suppress(SettingError):  # the given settings refuse this choice
                    self._arguments({name: one})
                    fitting.append(one)
            if len(fitting) > 1:
                space[name] = tuple(fitting)
        return space

    def run_path(self, number: int) -> Path:
        return self.path / f"trial-{number:03}"

    def try_next(self, study: Study) -> None:
        """Train with the settings of the next trial and record its value, or its end."""
        from foretaste.tune.study import Pruned, Pruning

        trial = study.next_trial()
        path, searched = self.run_path(trial.number), study.settings(trial)
        try:
            configs = self._arguments(searched)
        except SettingError as error:  # choices that contradict each other
            study.fail(trial, str(error))
            return
        try:
            with displayed(self.callback, configs["config"], searched) as shown:
                callback = Callbacks(shown, Pruning(trial, self.select_by))
                run = finished_run(path, self.model, self.dataset, callback, **configs)
            study.complete(trial, self._value(run))
        except Pruned:
            Run.open(path).discard_state()
            study.prune(trial)
        except Exception as error:
            # Other errors, such as a full disk, are no fault of the settings: they end the search,
            # and the trial is resumed later.
            if not isinstance(error, TrainingError | UnsupportedError) and not was_refused(error):
                raise
            if (path / CONFIG).exists():
                Run.open(path).discard_state()
            study.fail(trial, str(error))

    def _arguments(self, searched: Mapping[str, Any]) -> dict[str, Any]:
        """The configs of a trial; SettingError if its settings contradict each other."""
        configs: dict[str, Any] = {"config": self.config, "model_config": self.model_config}
        for name, config in configs.items():
            own = {one: searched[one] for one in searched if hasattr(config, one)}
            configs[name] = replace(config, **own)
        return configs

    def _value(self, run: Run) -> float:
        """The validation metric of a run's weights."""
        value = run.log.read()[-1]["best_value"]
        if value is not None:
            return float(value)
        found = evaluate_run(
            run,
            self.dataset,
            split="validation",
            device=self.config.device,
            candidates=self.config.candidates,
            evaluation_batch=self.config.evaluation_batch,
            k=[parse_metric(self.select_by)[1]],
        )
        return found[self.select_by]

    def result(self, study: Study, given: Mapping[str, Any]) -> Search:
        """The finished trials."""
        return Search(
            path=self.path,
            model=self.model,
            dataset=self.dataset.path,
            select_by=self.select_by,
            fixed=given,
            trials=tuple(
                Trial(
                    number=one.number,
                    settings=study.settings(one),
                    state={"FAIL": "failed"}.get(one.state.name, one.state.name.lower()),
                    value=next(reversed(one.intermediate_values.values()), None)
                    if one.value is None
                    else one.value,
                    run=self.run_path(one.number),
                    reason=one.user_attrs.get("reason"),
                )
                for one in study.finished
            ),
        )
