"""Optuna's part of a search: trials in a SQLite file, proposed by TPE, pruned by the median.

A proposal is a function of the seed, the trial's number and the trials before it. Optuna's storage
does not keep the state of the sampler, so a new sampler is made for each trial.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from foretaste.errors import MissingExtraError, RunError
from foretaste.models.config import Between, SearchSpace
from foretaste.training.callbacks import Callback, EpochReport

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.exceptions import StorageInternalError
    from optuna.trial import FrozenTrial, TrialState
    from optuna.trial import Trial as OptunaTrial
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingExtraError(
        "Optuna searches settings and is not installed; pip install optuna"
    ) from error

DATABASE = "trials.db"
_NAME = "trials"
_NUM_NOT_PRUNED = 5
"""Number of first trials that are never pruned."""

_EPOCHS_NOT_PRUNED = 5
"""Number of first epochs of a trial that never prune it; early metrics say little."""

_FIRST = "first"
"""Key of the first trial's settings: choosing them takes a few fits, which are not repeated."""

_DIGITS = 4
"""Significant digits of a proposed number; more would make command lines long."""


class Study:
    """The trials in a directory, for one process at a time."""

    def __init__(self, path: Path, space: SearchSpace, seed: int) -> None:
        """Open or create the trials in ``path``."""
        self._space, self._seed = space, seed
        self._distributions = {name: _distribution(values) for name, values in space.items()}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # The path is a URI with a quoted name: an ordinary URL would end at a question mark in the
        # name.
        url = f"sqlite:///file:{quote(str((path / DATABASE).resolve()))}?uri=true"
        self._storage = optuna.storages.RDBStorage(url)
        self._study = optuna.create_study(
            study_name=_NAME,
            storage=self._storage,
            direction="maximize",
            load_if_exists=True,
            # Trials that end early do not report every epoch, so a median needs enough others.
            pruner=optuna.pruners.MedianPruner(
                _NUM_NOT_PRUNED, _EPOCHS_NOT_PRUNED, n_min_trials=_NUM_NOT_PRUNED
            ),
        )

    def begin(self, first: Callable[[], Mapping[str, Any]]) -> None:
        """Give the first trial what ``first`` returns, searched or not; the study keeps it."""
        if _FIRST not in self._study.user_attrs:
            self._study.set_user_attr(_FIRST, dict(first()))
        kept = self._study.user_attrs[_FIRST].items()
        self.first = {name: tuple(one) if isinstance(one, list) else one for name, one in kept}

    def close(self) -> None:
        """Close the file."""
        self._storage.engine.dispose()

    @property
    def finished(self) -> list[FrozenTrial]:
        """Optuna's records of the finished trials, in order."""
        return [one for one in self._complete_trials() if one.state.is_finished()]

    def _complete_trials(self) -> list[FrozenTrial]:
        """Return the trials with all settings; a killed process may leave a partial one."""
        trials = self._study.get_trials(deepcopy=False)
        return [one for one in trials if one.params.keys() == self._space.keys()]

    @cached_property
    def _first_number(self) -> int:
        """Number of the trial with the settings of `first`, once it is there."""
        number: int = self._complete_trials()[0].number
        return number

    def next_trial(self) -> OptunaTrial:
        """Return the trial that an earlier process left running, or a new one."""
        whole = {one.number for one in self._complete_trials()}
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for one in running:
            if one.number in whole:
                return OptunaTrial(self._study, self._id(one))
            # A process was killed while it asked for settings: nothing was trained.
            self._end(one, TrialState.FAIL)
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not whole and not waiting:
            space, first = self._space.items(), self.first
            positions = {name: _position(values, first[name]) for name, values in space}
            self._study.enqueue_trial(positions)
        # Only trials with all settings count, so a trial that a kill left without some does not
        # change the seeds of later trials.
        number = len(self.finished)
        (seed,) = np.random.SeedSequence((self._seed, number)).generate_state(1)
        self._study.sampler = optuna.samplers.TPESampler(seed=int(seed))
        return self._study.ask(self._distributions)

    def settings(self, trial: OptunaTrial | FrozenTrial) -> dict[str, Any]:
        """Return the settings of a trial by name."""
        if trial.number == self._first_number:  # values may have no place in their ranges
            return {name: self.first[name] for name in self._space}
        found: dict[str, Any] = {}
        for name, values in self._space.items():
            value = trial.params[name]
            is_real = isinstance(values, Between) and isinstance(value, float)
            choice = value if isinstance(values, Between) else values[value]
            found[name] = float(f"{value:.{_DIGITS}g}") if is_real else choice
        return found

    def complete(self, trial: OptunaTrial, value: float) -> None:
        self._end(trial, TrialState.COMPLETE, value)

    def prune(self, trial: OptunaTrial) -> None:
        self._end(trial, TrialState.PRUNED)

    def fail(self, trial: OptunaTrial, reason: str) -> None:
        trial.set_user_attr("reason", reason)
        self._end(trial, TrialState.FAIL)

    def _end(self, trial: OptunaTrial | FrozenTrial, state: TrialState, *values: float) -> None:
        self._storage.set_trial_state_values(self._id(trial), state, values or None)

    def _id(self, trial: OptunaTrial | FrozenTrial) -> int:
        """Return the storage's number of a trial."""
        study_id = self._storage.get_study_id_from_name(_NAME)
        found: int = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        return found


@contextmanager
def open_study(
    path: Path, space: SearchSpace, seed: int, first: Callable[[], Mapping[str, Any]]
) -> Iterator[Study]:
    """Yield a begun `Study`, closed at the end; RunError if its file fails, as on a full disk."""
    try:
        with closing(Study(path, space, seed)) as study:
            study.begin(first)
            yield study
    except (StorageInternalError, SQLAlchemyError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise RunError(
            f"{path / DATABASE} cannot be read or written: {cause}; the same command resumes once "
            "it can"
        ) from error


class Pruned(Exception):  # noqa: N818 (no mistake)
    """A trial was below the median of earlier ones, so its training was stopped."""


class Pruning(Callback):
    """Callback that reports each validation of a trial and stops it by raising `Pruned`."""

    def __init__(self, trial: OptunaTrial, select_by: str) -> None:
        self._trial, self._select_by = trial, select_by

    def epoch_done(self, report: EpochReport) -> None:
        if report.evaluation is None:
            return
        with warnings.catch_warnings():
            # After a kill an epoch is repeated and reported again, with the same value.
            warnings.filterwarnings("ignore", message=".*already reported", category=UserWarning)
            self._trial.report(report.evaluation[self._select_by], report.epoch)
        if self._trial.should_prune():
            raise Pruned


def _distribution(values: Between | tuple[Any, ...]) -> BaseDistribution:
    """Optuna's distribution of a range or of choices. Choices are given by position, because Optuna
    takes no lists."""
    if not isinstance(values, Between):
        return CategoricalDistribution(tuple(range(len(values))))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, log=values.log)
    return FloatDistribution(float(values.low), float(values.high), log=values.log)


def _position(values: Between | tuple[Any, ...], value: Any) -> Any:
    """Optuna's form of a value: a number moved into the range, or the position of a choice.

    The middle of the range stands for auto, and the first choice for a value that is no choice.
    """
    if isinstance(values, Between):
        if value in ("auto", None):
            low, high = values.low, values.high
            value = (low * high) ** 0.5 if values.log else (low + high) / 2
            return int(value) if isinstance(low, int) and isinstance(high, int) else value
        return min(max(value, values.low), values.high)
    return values.index(value) if value in values else 0
