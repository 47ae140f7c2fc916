"""The verb ``compete``: trains and measures several models on one dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from foretaste._util.formatting import duration
from foretaste._util.keywords import assign_settings
from foretaste._util.memory import was_refused
from foretaste._util.settings import Range, Threads, check_settings, non_defaults, setting_error
from foretaste._util.terminal import print_error
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset
from foretaste.data.request import OF_DATA, PrepareRequest, take_data
from foretaste.errors import SettingError, TrainingError, UnsupportedError
from foretaste.evaluation.config import (
    EvaluationConfig,
    canonical_metrics,
    lengths_of,
    measures_lists,
)
from foretaste.evaluation.result import Evaluation, compare_evaluations
from foretaste.measure.evaluate_runs import compare_runs, evaluate_run
from foretaste.measure.tables import HEADLINE, with_new_items
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.ops.device import computing_with
from foretaste.runs.run import Run
from foretaste.training.api import open_data, show_training
from foretaste.training.auto import selected_metric
from foretaste.training.blending import blend, blend_weights
from foretaste.training.callbacks import Callback
from foretaste.training.config import TrainingConfig
from foretaste.training.request import TrainRequest
from foretaste.tune.config import COMPETITIONS
from foretaste.tune.directory import finished_run, trainings_at, write_tables
from foretaste.tune.leaderboard import BLEND, Entry, Leaderboard
from foretaste.tune.search import TuneRequest, check_validation, search_settings

if TYPE_CHECKING:
    from foretaste.keywords import CompeteKeywords

_QUICKEST = ("popularity", "ials", "rp3beta", "itemknn", "ease", "slist")
"""Models without gradient steps, the quickest first; those of other packages come after them."""


def compete(
    dataset: Dataset | Path | str | Any,
    *,
    models: Sequence[str] = (*MODEL_NAMES, BLEND),
    tune: int = 0,
    config: TrainingConfig | None = None,
    metrics: Sequence[str] = HEADLINE,
    output: Path | str | None = None,
    callback: Callback | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
    **settings: Unpack[CompeteKeywords],
) -> Leaderboard:
    """Train models on ``dataset``, one after another, and rank them by its test part.

    The quick models come first. A line before each model has its number and, after the first slow
    model, the expected time of the rest.

    After an interruption, a call with the same arguments resumes; finished trainings are not
    repeated. If interactions have weights, models that take them are also trained without them, and
    a note has the gain of the weights. A model that cannot be trained, for example for lack of
    memory, is an entry with its reason. Settings may be given by name, as in `train`.

    Args:
        dataset: as in `train`; with a test part.
        models: names of models, by default all; each is trained with its default settings. With
            ``blend`` the last entry is a blend of the models by which validation gains.
        tune: trials of a search for the settings of each model with a search space, as in
            `tune_model`; its best run takes part.
        config: settings of every training; a model ignores settings that do nothing for it.
        metrics: metrics of the table. The one that chooses the epoch ranks the models.
        output: directory of the runs, and of the table as Markdown, CSV and JSON; by default
            ``competitions/NAME`` with the dataset's name.
        callback: as in `train`; gets the events of every training.
        progress: as in `compare_runs`, for the trained models.
        threads: as in `train`, for measuring too.

    Raises SettingError if ``output`` was begun with other settings or holds other files,
    DatasetError if there is no test part, and the first model's error if all models failed.
    """
    request = CompeteRequest.of(
        dataset,
        models=models,
        tune=tune,
        config=config,
        metrics=metrics,
        output=output,
        threads=threads,
        **settings,
    )
    return train_and_rank(request, callback, progress)


@dataclass(frozen=True, kw_only=True)
class CompeteRequest:
    """The request of `train_and_rank`; the command line and `compete` make the same one."""

    data: PrepareRequest
    """The dataset, or the raw interactions to prepare first."""

    models: tuple[str, ...] = (*MODEL_NAMES, BLEND)
    """Names of the models, and ``blend``."""

    tune: Annotated[int, Range(at_least=0)] = 0
    """Trials of a search for the settings of each model with a search space."""

    config: TrainingConfig = field(default_factory=TrainingConfig)
    """Settings of every training."""

    metrics: tuple[str, ...] = HEADLINE
    """Metrics of the table."""

    output: Path | None = None
    """Directory of the runs and the table; by default ``competitions/NAME`` with the dataset's
    name."""

    threads: Threads | None = None
    """CPU threads of the trainings and of measuring."""

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "models", tuple(dict.fromkeys(self.models)))
        if not set(self.models) - {BLEND}:
            raise setting_error("models", self.models, "a list of one model or more")
        for name in self.models:
            config_class(name)
        object.__setattr__(self, "metrics", canonical_metrics(self.metrics))

    @classmethod
    def of(cls, dataset: Any, **keywords: Any) -> CompeteRequest:
        """Return the request of the keywords of `compete`."""
        names = [item.name for item in fields(cls) if item.name not in ("data", "config")]
        parts: dict[str, type[Any]] = {"config": TrainingConfig, "preparation": PrepareConfig}
        given = assign_settings("compete", keywords, (*names, *OF_DATA), parts)
        return cls(data=take_data(dataset, given), **given)

    def training(self, model: str, name: str, **settings: Any) -> TrainRequest:
        """Return the training of a model with these settings, for the run of a name."""
        assert self.output is not None
        return TrainRequest(
            model=model,
            data=self.data,
            model_config=config_class(model)(**settings),
            config=self.config,
            run=self.output / name,
        )


def train_and_rank(
    request: CompeteRequest,
    callback: Callback | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Leaderboard:
    """Carry out a request. `compete` says what is raised, and what the others are."""
    config = request.config
    with show_training(callback, config) as display:
        data = open_data(request.data, display)
    data.heldout("test")  # raises DatasetError before the first training
    if request.tune:
        check_validation(data)
    select_by = selected_metric(config, data.manifest.protocol)
    columns = tuple(dict.fromkeys((select_by, *request.metrics)))
    evaluation = EvaluationConfig(
        candidates=config.candidates,
        k=lengths_of(columns),
        more=measures_lists(columns),
        evaluation_batch=config.evaluation_batch,
    )
    place = request.output or COMPETITIONS / data.path.name
    request = replace(request, data=PrepareRequest(source=data), output=place)
    about = {"dataset": data.manifest.digest, **asdict(config), "tune": request.tune > 0}
    with computing_with(request.threads), trainings_at(place, about):
        runs, reasons = _train_models(request, callback)
        compared = compare_runs(
            list(runs.values()), evaluation, dataset=data, device=config.device, progress=progress
        )
        found = dict(zip(runs, compared.evaluations.values(), strict=True))
        entries = [*_rank_entries(runs, found, select_by), *reasons]
        if BLEND in request.models:
            _announce(callback, f"{BLEND}: weights by validation")
            try:
                entries.append(_blend_trained(request, entries, data, evaluation, select_by))
            except Exception as error:
                entries.append(_failed_entry(BLEND, error))
        without = _evaluate_without_weights(request, [*runs], data, evaluation, callback)
        board = Leaderboard(
            path=place,
            select_by=select_by,
            metrics=tuple(with_new_items(columns, found.values())),
            entries=tuple(entries),
            trials=request.tune,
            gains={
                model: compare_evaluations(plain, found[model])[select_by]
                for model, plain in without.items()
            },
            given=non_defaults(config),
        )
        write_tables(place, board.grid(), board.notes(), board.rows())
        return board


def _announce(callback: Callback | None, line: str) -> None:
    """Print a line, unless a callback replaces all output."""
    if callback is None:
        print_error(line)


def _train_models(
    request: CompeteRequest, callback: Callback | None
) -> tuple[dict[str, Run], list[Entry]]:
    """Return the finished runs by model, in the given order, and an entry for each model that
    failed. If all failed, the first error is raised."""
    names = [name for name in request.models if name != BLEND]
    runs: dict[str, Run] = {}
    reasons, errors = [], []
    places = {model: place for place, model in enumerate(_QUICKEST)}
    ordered = sorted(names, key=lambda one: (_is_slow(one), places.get(one, len(places))))
    for number, model in enumerate(ordered):
        slow_s = [elapsed_s(run.log.read()) for name, run in runs.items() if _is_slow(name)]
        rest = ""
        if slow_s:
            num_left = len(names) - number
            rest = f"; about {duration(num_left * fmean(slow_s))} for the last {num_left}"
        _announce(callback, f"{number + 1} of {len(names)}: {model}{rest}")
        try:
            runs[model] = _run_of(model, request, callback)
        except Exception as error:
            reasons.append(_failed_entry(model, error))
            errors.append(error)
    if not runs:
        raise errors[0]
    return {name: runs[name] for name in names if name in runs}, reasons


def _run_of(model: str, request: CompeteRequest, callback: Callback | None) -> Run:
    """Return the run of a model: of its default settings, or the best of its trials."""
    training = request.training(model, model)
    if not request.tune or not config_class(model).search_space:
        return finished_run(training, callback)
    search = TuneRequest(
        train=replace(training, run=None), trials=request.tune, output=training.run
    )
    return Run.open(search_settings(search, callback).best.run)


def _evaluate_without_weights(
    request: CompeteRequest,
    models: Sequence[str],
    data: Dataset,
    evaluation: EvaluationConfig,
    callback: Callback | None,
) -> dict[str, Evaluation]:
    """Return the evaluations of models that take the weights of interactions, trained without them.
    Empty if there are no weights, or if trials try both."""
    if data.manifest.mean_weight is None or request.tune:
        return {}
    takers = [model for model in models if hasattr(config_class(model), "ignore_weights")]
    found = {}
    for number, model in enumerate(takers, 1):
        of_all = f"{number} of {len(takers)} without weights"
        _announce(callback, f"{of_all}, to see what they gain: {model}")
        training = request.training(model, f"{model}-without-weights", ignore_weights=True)
        run = finished_run(training, callback)
        found[model] = evaluate_run(run, data, evaluation, device=request.config.device)
    return found


def _is_slow(model: str) -> bool:
    """Return True for a model that is trained by gradient steps."""
    kind = config_class(model)
    return kind.has_epochs and kind.has_steps


def _failed_entry(model: str, error: Exception) -> Entry:
    """Return the entry of a model that failed by its own fault; raise other errors."""
    is_own = isinstance(error, TrainingError | UnsupportedError | SettingError)
    if not is_own and not was_refused(error):
        raise error
    return Entry(model=model, reason=str(error))


def elapsed_s(log: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of a training: its search, compiling, training and all evaluations."""
    evaluations = [one["evaluation"] for one in log if one["event"] == "evaluation"]
    evaluation_s = sum(float(one["elapsed_s"]) for one in evaluations)
    return evaluation_s + sum(float(log[-1][name]) for name in ("search_s", "compile_s", "train_s"))


def _rank_entries(
    runs: Mapping[str, Run], found: Mapping[str, Evaluation], select_by: str
) -> list[Entry]:
    """Return the entries of finished runs, best first; equal runs stay in the given order."""
    order = sorted(runs, key=lambda model: -found[model][select_by])
    best = found[order[0]]
    entries = []
    for model in order:
        log = runs[model].log.read()
        difference = None
        if found[model] is not best:
            difference = compare_evaluations(best, found[model]).get(select_by)
        entries.append(
            Entry(
                model=model,
                run=runs[model].path,
                evaluation=found[model],
                to_best=difference,
                elapsed_s=elapsed_s(log),
                memory_mib=log[-1]["memory_mib"],
                epoch_of_test=_chose_on_test(log),
            )
        )
    return entries


def _chose_on_test(log: Sequence[Mapping[str, Any]]) -> bool:
    """Return True for the log of a run whose epoch was chosen, among several, on the test part."""
    epochs = {one["epoch"] for one in log if one["event"] == "evaluation"}
    return log[-1]["selection_split"] == "test" and len(epochs) > 1


def _blend_trained(
    request: CompeteRequest,
    entries: Sequence[Entry],
    dataset: Dataset,
    evaluation: EvaluationConfig,
    select_by: str,
) -> Entry:
    """Return the entry of a blend of the trained models; ``entries`` has the best of them first."""
    config = request.config
    members = [one for one in entries if one.run is not None]
    if len(members) < 2 or not dataset.has_split("validation"):
        need = "a validation part to find weights on" if len(members) > 1 else "two models"
        return Entry(model=BLEND, reason=f"it needs {need}")
    runs = [Run.open(one.run) for one in members if one.run is not None]
    how: Any = {"dataset": dataset, "candidates": config.candidates, "device": config.device}
    weights = blend_weights(runs, select_by=select_by, **how)
    shares = {run: weight for run, weight in zip(runs, weights, strict=True) if weight}
    if len(shares) < 2:
        return Entry(model=BLEND, reason="validation gains nothing by a second model")
    assert request.output is not None
    # The blend overwrites a run there, which is of other models or of an interrupted competition.
    run = blend(
        list(shares),
        weights=tuple(shares.values()),
        run=request.output / BLEND,
        overwrite=True,
        callback=Callback(),
        **how,
    )
    found = evaluate_run(run, dataset, evaluation, device=config.device)
    best = members[0].evaluation
    assert best is not None
    log = run.log.read()
    return Entry(
        model=BLEND,
        run=run.path,
        evaluation=found,
        to_best=compare_evaluations(best, found).get(select_by),
        elapsed_s=elapsed_s(log),
        memory_mib=log[-1]["memory_mib"],
        members=tuple((run.config.model, weight) for run, weight in shares.items()),
    )
