"""Evaluations of runs, on their own dataset or on another, alone or side by side."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from foretaste._util.documents import Document
from foretaste._util.formatting import html_table, pluralize
from foretaste._util.settings import setting_error, validate
from foretaste._util.signatures import with_keywords_of
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.errors import DatasetError, NothingLeftError, SettingError, WorseError
from foretaste.evaluation.config import EvaluationConfig
from foretaste.evaluation.gate import FEWEST_USERS, Verdict, judge
from foretaste.evaluation.result import Difference, compare_evaluations
from foretaste.measure.request import MeasureOptions, MeasureRequest
from foretaste.measure.tables import comparison_grid, difference_grid, metric_rows
from foretaste.models.registry import config_class
from foretaste.runs.run import Run, dataset_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from foretaste.data.dataset import HeldOut
    from foretaste.evaluation.result import Evaluation
    from foretaste.measure.another_dataset import MatchedUsers
    from foretaste.models.base import RecommenderModel

Progress = Callable[[int, int], None]


@with_keywords_of(MeasureOptions, MeasureRequest, EvaluationConfig)
def evaluate_run(
    run: Run | Path | str,
    dataset: Dataset | Path | str | None = None,
    config: EvaluationConfig | None = None,
    *,
    progress: Progress | None = None,
    **settings: Unpack[MeasureOptions],
) -> Evaluation:
    """Return metrics of a run's best weights on the held-out users of a dataset.

    Under torchrun each rank measures a part of the users, and each returns the metrics of all.

    Args:
        run: a run or its directory.
        dataset: by default the run's own, at its place at the time of training. On another dataset,
            users and items are matched by id, held-out pairs in the run's training are left out,
            and the run recommends from its own catalogue; `Evaluation.matching` has the counts.
        config: settings of the evaluation; settings given by name override them.
        progress: called with the number of users done and the number in all.
        split: held-out part to measure on, ``test`` or ``validation``.
        candidates: items that a held-out one is ranked against: ``full``, ``new``, ``sampled-N``,
            ``nvidia-N`` or ``fixed``.
        k: lengths of the lists, ``10`` or ``[5, 10]``.
        evaluation_batch: users ranked at once; by default as many as memory is reserved for.
        more: measure the lists beyond accuracy too, and quality by groups of users and items.
        history_lengths: measure users unseen in training also with that many items of their
            history.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: CPU threads of each rank; by default PyTorch's number.

    Raises DatasetError if the dataset is missing, has no such split, or has nothing in common with
    the run, and UnsupportedError if the model needs an order and the dataset has none.
    """
    request = MeasureRequest.of("evaluate_run", dataset=dataset, config=config, **settings)
    return measure_run(run if isinstance(run, Run) else Run.open(run), request, progress)


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """The metrics of a run, with its model and the held-out users."""

    run: Run
    model: RecommenderModel
    heldout: HeldOut
    """The held-out users, with the run's indexes."""
    evaluation: Evaluation


def measure_run(run: Run, request: MeasureRequest, progress: Progress | None = None) -> Evaluation:
    """Measure one run; `evaluate_run` says how."""
    (found,) = measure_runs([run], request, progress)
    return found.evaluation


def measure_runs(
    runs: Sequence[Run], request: MeasureRequest, progress: Progress | None = None
) -> Iterator[MeasuredRun]:
    """Measure runs in turn; match users and items by id unless all were trained on the dataset."""
    from foretaste.evaluation.evaluator import evaluate
    from foretaste.measure.another_dataset import match
    from foretaste.ops.device import computing_with
    from foretaste.runs.run import load_model
    from foretaste.training.auto import check_order
    from foretaste.training.strategy import strategy_here

    dataset = dataset_of_runs(runs, request.dataset)
    each: Iterable[MatchedUsers | None] = repeat(None, len(runs))
    if any(run.config.dataset.digest != dataset.manifest.digest for run in runs):
        each = match(runs, dataset, request.split)
    with computing_with(request.threads), strategy_here() as strategy:
        for run, matched in zip(runs, each, strict=True):
            model = load_model(run, strategy.device(request.device))
            check_order(run.config.model, model.config, dataset)
            heldout = (
                dataset.heldout(request.split, order=model.config.uses_order)
                if matched is None
                else matched.heldout
            )
            try:
                found = evaluate(
                    model, heldout, request.config, progress=progress, ranking=strategy.ranking
                )
            except DatasetError as error:
                raise DatasetError(f"{run.path}: {error}") from error
            if matched is not None:
                user_index = matched.user_index[heldout.target.lengths() > 0]
                found = replace(found, user_index=user_index, matching=matched.matching)
            yield MeasuredRun(run, model, heldout, found)


def top_items(measured: MeasuredRun, rows: NDArray[np.int64], k: int) -> list[NDArray[np.int64]]:
    """Return the k items that a run lists for each row of its held-out users, best first."""
    from foretaste.evaluation.ranking import (
        ABSENT,
        mask_items_,
        scoring,
        state_of,
        to_device,
        top_k,
        user_batches,
        users_at_once,
    )
    from foretaste.ops.precision_flags import float32_products

    model, people = measured.model, measured.heldout.rows(rows)
    num_train_users = people.num_train_users
    found: dict[int, NDArray[np.int64]] = {}
    at_once = users_at_once(model.num_items, model.device)
    for batch in user_batches(people.user_index, num_train_users, at_once):
        part = people.rows(batch).read_by(model.num_items)
        with scoring(model), float32_products(model.device):
            history = to_device(part.history, model.device)
            asked = (part.user_index, history, num_train_users, part.is_grown)
            state = state_of(model, *asked)
            known = to_device(part.known.within(model.num_items), model.device)
            top = top_k(mask_items_(model.score_catalogue(state).float(), known), k)
        for row, items, scores in zip(batch, top.candidate_BK, top.score_BK, strict=True):
            found[int(row)] = items[scores != ABSENT].cpu().numpy()
    return [found[row] for row in range(len(rows))]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison of runs."""

    evaluations: dict[str, Evaluation]
    """The evaluations by label, in the given order."""

    differences: dict[str, dict[str, Difference]]
    """The difference of each later run to the first, by label and metric."""

    paths: dict[str, Path]
    """The directory of the run of each label."""

    models: dict[str, str]
    """The model of the run of each label."""

    nothing_left: str = ""
    """The reason why there is nothing to compare on, and so no evaluation; otherwise empty."""

    def verdict(self, metric: str) -> Verdict:
        """Return the verdict on the last run, beside the first, by a metric of held-out items.

        Raises SettingError if two runs have no difference in it.
        """
        labels = list(self.paths)
        if metric not in self.differences.get(labels[-1], {}):
            raise SettingError(
                f"{metric} has no difference between two runs here; compare two, by a metric of "
                "held-out items such as ndcg@10"
            )
        first, last = (self.evaluations[label] for label in (labels[0], labels[-1]))
        has_seed = any(config_class(model).has_epochs for model in self.models.values())
        return judge(metric, first.per_user[metric], last.per_user[metric], has_seed=has_seed)

    def check_not_worse(self, metric: str) -> str:
        """Raise WorseError if the last run is clearly worse than the first by a metric.

        The metric is of held-out items. Clearly worse means that the 95 % interval of their
        difference is below 0, and for models that are trained by steps below the difference that
        another seed brings. Returns a sentence with the verdict. Raises SettingError if two runs
        have no difference in the metric.
        """
        if self.nothing_left:
            return f"nothing new to compare on: {self.nothing_left}"
        found, paths = self.verdict(metric), list(self.paths.values())
        if found.outcome == "too few":
            users = pluralize(found.num_users, "user")
            return f"nothing decided: {users} to compare on, and {FEWEST_USERS} are the fewest"
        by = f"{paths[-1]} is {{}}clearly worse than {paths[0]}: {found.numbers()}; {found.seen()}"
        if found.outcome == "worse":
            raise WorseError(f"{by.format('')}; keep the earlier one")
        start = "gate passed: " if found.outcome == "passed" else "a tenth could not be seen: "
        return start + by.format("not ")

    def notes(self, defined: Sequence[str] | None = None) -> list[str]:
        """Return lines to print below the metrics: the run of each label, and the conditions.

        They have the definitions of the metrics in ``defined``.
        """
        lines = [f"{label}: {self.models[label]}, {path}" for label, path in self.paths.items()]
        measured = [
            line
            for label, found in self.evaluations.items()
            for line in (
                found.conditions(label) if defined is None else found.definitions(defined, label)
            )
        ]
        return lines + list(dict.fromkeys(measured))

    def _repr_html_(self) -> str:
        if self.nothing_left:
            return html.escape(self.check_not_worse(""))
        label, first = next(iter(self.evaluations.items()))
        names, about = list(first.metrics), first.conditions()[0]
        grids = {about: comparison_grid(self.evaluations, names)}
        if self.differences:
            caption = f"difference to {label} on the same users (* the interval leaves out 0)"
            grids[caption] = difference_grid(self.differences, names)
        return "".join(
            html_table(caption, grid.headings, [(label, *cells) for label, cells in grid.rows])
            for caption, grid in grids.items()
        )

    def rows(self) -> list[Document]:
        """Return one flat record per run, metric and group, with the difference to the first run.

        ``difference`` and its interval are None for the first run itself, for coverage, and for
        groups.
        """
        rows = []
        for label, evaluation in self.evaluations.items():
            for row in metric_rows(self.paths[label], label, evaluation):
                of_all = {} if row["by"] else self.differences.get(label, {})
                found = of_all.get(row["metric"])
                row["difference"] = found and found.value
                row["difference_low"] = found and found.low
                row["difference_high"] = found and found.high
                rows.append(row)
        return rows


@with_keywords_of(MeasureOptions, MeasureRequest, EvaluationConfig)
def compare_runs(
    runs: Sequence[Run | Path | str],
    config: EvaluationConfig | None = None,
    *,
    dataset: Dataset | Path | str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[MeasureOptions],
) -> Comparison:
    """Measure all runs in the same way on ``dataset``, by default the dataset of all of them.

    `evaluate_run` explains the other arguments. A run of another dataset is matched in the same
    way, and held-out pairs in the training of any run are left out for all. ``progress`` is called
    for each run, one after another. If nothing is left to compare on, the comparison has no
    evaluations, and says why in ``nothing_left``. Raises SettingError if no dataset is given and
    the runs have different ones.
    """
    request = MeasureRequest.of("compare_runs", dataset=dataset, config=config, **settings)
    return compare_measured(open_runs(runs), request, progress)


def compare_measured(
    runs: Sequence[Run], request: MeasureRequest, progress: Progress | None = None
) -> Comparison:
    """Measure runs and compare each with the first; `compare_runs` says how."""
    try:
        found = [each.evaluation for each in measure_runs(runs, request, progress)]
    except NothingLeftError as error:
        return side_by_side(runs, [], str(error))
    return side_by_side(runs, found)


def open_runs(runs: Sequence[Run | Path | str]) -> list[Run]:
    """Return the runs, opened."""
    named = validate("runs", runs, list[Run | Path])
    if not named:
        raise setting_error("runs", runs, "a list of one run or more")
    return [run if isinstance(run, Run) else Run.open(run) for run in named]


def dataset_of_runs(runs: Sequence[Run], dataset: Dataset | Path | None) -> Dataset:
    """Return the dataset of the measurement, by default the one of all runs."""
    first = runs[0]
    for run in runs[1:] if dataset is None else ():
        ours, theirs = first.config.dataset, run.config.dataset
        # Other held-out users and items give other metrics, even for equal models.
        if ours.digest != theirs.digest:
            raise SettingError(
                f"{first.path} and {run.path} were trained on different datasets, {ours.path} and "
                f"{theirs.path}, so their numbers do not compare; train both on one dataset, or "
                "name data to measure both on with --dataset (dataset=... in Python)"
            )
    if dataset is None:
        return dataset_of(first)
    return dataset if isinstance(dataset, Dataset) else open_dataset(dataset)


def side_by_side(
    runs: Sequence[Run], found: Sequence[Evaluation], nothing_left: str = ""
) -> Comparison:
    """Return the comparison of evaluated runs; of no runs if there is ``nothing_left``."""
    labels = _labels(runs)
    evaluations = dict(zip(labels, found, strict=not nothing_left))
    return Comparison(
        evaluations=evaluations,
        differences={
            label: compare_evaluations(found[0], other)
            for label, other in list(evaluations.items())[1:]
        },
        paths={label: run.path for label, run in zip(labels, runs, strict=True)},
        models={label: run.config.model for label, run in zip(labels, runs, strict=True)},
        nothing_left=nothing_left,
    )


def _labels(runs: Sequence[Run]) -> list[str]:
    """Return the label of each run: the name of its directory, or its whole path if two names are
    equal. A run that is given twice gets a number."""
    names = [run.path.resolve().name for run in runs]
    labels = [
        name if names.count(name) == 1 else str(run.path)
        for name, run in zip(names, runs, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label} ({labels[: number + 1].count(label)})"
        for number, label in enumerate(labels)
    ]
