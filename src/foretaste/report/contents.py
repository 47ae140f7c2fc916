"""Contents of a report: the comparison of runs, and the lists of some users by each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import numpy as np

from foretaste._util.settings import Range, validate
from foretaste._util.signatures import with_keywords_of
from foretaste.data.dataset import Dataset, Split
from foretaste.errors import MissingExtraError, SettingError
from foretaste.evaluation.config import (
    EvaluationConfig,
    canonical_metrics,
    default_metric,
    lengths_of,
)
from foretaste.host import ensure_home
from foretaste.measure.evaluate_runs import (
    Comparison,
    MeasuredRun,
    Progress,
    dataset_of_runs,
    measure_runs,
    open_runs,
    side_by_side,
    top_items,
)
from foretaste.measure.request import MeasureOptions, MeasureRequest
from foretaste.measure.tables import HEADLINE, LENGTHS, shown_metrics, with_new_items
from foretaste.runs.run import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretaste.data.histories import Histories
    from foretaste.data.ids import IdTable

HISTORY_LENGTHS = (1, 2, 5, 10, 20, 50)
"""Lengths of history with which new users are measured."""

_NUM_SHOWN = 10
"""Number of items in a list of the report."""

_NumPeople = Annotated[int, Range(at_least=0)]


@dataclass(frozen=True, kw_only=True)
class Person:
    """A held-out user: some items of the history, and the list of each run."""

    user_id: int | str
    history: list[str]
    num_history: int
    num_targets: int
    lists: dict[str, list[tuple[str, bool]]]
    """The titles of each run's list, by label, best first; each title has True for a held-out
    item."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunsReport:
    """The measured contents of a report: ``report_runs(runs).write("report.html")``."""

    comparison: Comparison
    runs: dict[str, Run]
    """The runs by label, in the order of the comparison."""
    dataset: Dataset
    metrics: tuple[str, ...]
    """Metrics of the tables."""
    people: list[Person]

    @property
    def focus(self) -> str:
        """The metric of the plots by group and epoch; it is the default that chooses the epoch."""
        return default_metric(self.dataset.manifest.protocol)

    def write(self, output: Path | str, *, overwrite: bool = False) -> Path:
        """Write the report to one ``.html`` file.

        Raises SettingError if ``output`` exists, unless ``overwrite``.
        """
        from foretaste.report.page import write_page

        path = check_output(output, overwrite=overwrite)
        try:
            write_page(self, path, overwrite=overwrite)
        except FileExistsError as error:  # another process wrote it in the meantime
            raise _exists(path) from error
        return path


def check_output(output: Path | str, *, overwrite: bool = False) -> Path:
    """Return the path of a report; SettingError if it cannot be written, MissingExtraError if a
    package for its plots is not installed."""
    path = validate("output", output, Path)
    validate("overwrite", overwrite, bool)
    if path.suffix != ".html":
        raise SettingError(f"output {path} must end in .html")
    if not path.parent.is_dir():
        raise SettingError(f"output {path}: there is no directory {path.parent}")
    if path.is_dir():
        raise SettingError(f"output {path} is a directory; name a file in it")
    if path.exists() and not overwrite:
        raise _exists(path)
    ensure_home()
    for module in ("altair", "vl_convert", "jinja2"):
        if find_spec(module) is None:
            raise MissingExtraError(
                f"a report needs {module}, which is not installed; "
                "pip install altair jinja2 vl-convert-python"
            )
    return path


def _exists(path: Path) -> SettingError:
    return SettingError(
        f"output {path} exists already; replace it with --overwrite (overwrite=True in "
        "Python) or name another"
    )


@with_keywords_of(MeasureOptions, MeasureRequest, EvaluationConfig)
def report_runs(
    runs: Sequence[Run | Path | str],
    config: EvaluationConfig | None = None,
    *,
    metrics: Sequence[str] = HEADLINE,
    num_people: int = 20,
    dataset: Dataset | Path | str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[MeasureOptions],
) -> RunsReport:
    """Measure runs for a report; `compare_runs` explains the arguments that are not given here.

    It also measures properties of the lists, and new users by the length of their history; the
    lengths of ``config`` count, if it has any. The tables have ``metrics``.
    ``num_people`` held-out users, chosen by hash, are shown with their lists.
    """
    request = MeasureRequest.of("report_runs", dataset=dataset, config=config, **settings)
    return report_measured(
        open_runs(runs), request, metrics=metrics, num_people=num_people, progress=progress
    )


def report_measured(
    runs: Sequence[Run],
    request: MeasureRequest,
    *,
    metrics: Sequence[str] = HEADLINE,
    num_people: int = 20,
    progress: Progress | None = None,
) -> RunsReport:
    """Measure runs for a report; `report_runs` says how."""
    data = dataset_of_runs(runs, request.dataset)
    names = canonical_metrics(validate("metrics", metrics, list[str]))
    names = shown_metrics(names, data.manifest.protocol)
    config = request.config
    config = replace(config, more=True, k=(*LENGTHS, *config.k, *lengths_of(names)))
    is_own = all(run.config.dataset.digest == data.manifest.digest for run in runs)
    if config.history_lengths is None and is_own and data.manifest.protocol == "held-out-users":
        config = replace(config, history_lengths=HISTORY_LENGTHS)
    num_rankings = len(runs) * (1 + len(config.history_lengths or ()))
    shown = progress and _combine(progress, num_rankings)
    sample = _Sample(data, request.split, validate("num_people", num_people, _NumPeople))
    found = []
    for measured in measure_runs(runs, replace(request, dataset=data, config=config), shown):
        found.append(measured.evaluation)
        sample.add(measured)
    comparison = side_by_side(runs, found)
    labels = [*comparison.evaluations]
    return RunsReport(
        comparison=comparison,
        runs=dict(zip(labels, runs, strict=True)),
        dataset=data,
        metrics=tuple(with_new_items(names, found)),
        people=sample.people(labels),
    )


def _combine(progress: Progress, num_rankings: int) -> Progress:
    """Return one ranking's progress callback; consecutive rankings add up to one progress."""
    num_over = 0

    def report_one(num_done: int, num_users: int) -> None:
        nonlocal num_over
        progress(num_over * num_users + num_done, num_rankings * num_users)
        num_over += num_done == num_users

    return report_one


class _Sample:
    """A sample of held-out users, chosen by hash, with their lists by each run."""

    def __init__(self, dataset: Dataset, split: Split, num_people: int) -> None:
        self._dataset = dataset
        self._heldout = dataset.heldout(split)
        self._num_people = num_people
        self._rows: NDArray[np.int64] | None = None
        self._lists: list[list[list[tuple[str, bool]]]] = []

    def add(self, measured: MeasuredRun) -> None:
        """Add the lists of a run, ranked as for its metrics."""
        from foretaste.evaluation.evaluator import validation_rows

        run, heldout = measured.run, measured.heldout
        if (
            self._rows is None
        ):  # the same rows for each run, because all runs leave out the same pairs
            self._rows = np.sort(validation_rows(heldout, self._num_people))
        people = heldout.rows(self._rows)
        lists = []
        for items, target in zip(
            top_items(measured, self._rows, _NUM_SHOWN), _each(people.target), strict=True
        ):
            titles = _titles(run.items, items)
            lists.append([*zip(titles, np.isin(items, target).tolist(), strict=True)])
        self._lists.append(lists)

    def people(self, labels: Sequence[str]) -> list[Person]:
        """Return the users of the sample, with the lists of the runs of these labels."""
        assert self._rows is not None, "a run was added"
        people, items = self._heldout.rows(self._rows), self._dataset.items
        count_I = np.bincount(self._dataset.train.item_index, minlength=len(items))
        ids = self._dataset.users.ids(people.user_index)
        each = zip(
            ids,
            _each(people.history),
            _each(people.target),
            zip(*self._lists, strict=True),
            strict=True,
        )
        found = []
        for user_id, history, target, lists in each:
            ordered = history[np.argsort(-count_I[history], kind="stable")]
            # Evenly spaced from the most popular to the least popular item.
            chosen = np.linspace(0, len(history) - 1, min(_NUM_SHOWN, len(history))).round()
            person = Person(
                user_id=user_id,
                history=_titles(items, ordered[chosen.astype(np.int64)]),
                num_history=len(history),
                num_targets=len(target),
                lists=dict(zip(labels, lists, strict=True)),
            )
            found.append(person)
        return found


def _each(histories: Histories) -> list[NDArray[np.int32]]:
    """Return the items of each row."""
    return [histories.item_index[start:end] for start, end in pairwise(histories.offsets)]


def _titles(items: IdTable, index: NDArray[np.integer]) -> list[str]:
    """Return titles of items; the id of an item without a title."""
    ids = items.ids(index)
    titles = items.titles(index) or [None] * len(ids)
    return [str(id) if title is None else title for id, title in zip(ids, titles, strict=True)]
