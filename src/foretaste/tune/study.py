"""Optuna's part of a search: trials in a SQLite file, proposed by TPE, pruned by the median.

All of a trial's proposal is a function of the seed, its number and the trials before it: the
sampler, which the storage does not keep, is made anew for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from foretaste.errors import MissingExtraError, RunError
from foretaste.models.config import Between, SearchSpace
from foretaste.training.callbacks import Callback, EpochReport

try:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.exceptions import StorageInternalError
    from optuna.trial import TrialState
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingExtraError(
        "Optuna searches settings and is not installed; pip install optuna"
    ) from error

DATABASE = "trials.db"
_NAME = "trials"
_NUM_NOT_PRUNED = 5
"""Trials before the first that may be pruned."""

_EPOCHS_NOT_PRUNED = 5
"""Epochs of a trial before the first validation that may prune it: early ones say little."""

_AUTO = "auto"
"""Setting that the model chooses itself, as it does one that is None: only the first trial has it,
and its place in the range is not known. Also the name of the list of these in that trial's record,
beside defaults that are outside of the range.
"""

_DIGITS = 4
"""Of a number that is tried: more would only make command lines long."""


class Study:
    """Trials of one directory; one process at a time works on them."""

    def __init__(self, path: Path, space: SearchSpace, seed: int, first: Mapping[str, Any]) -> None:
        """Open the trials of ``path`` or begin them, with the settings ``first`` to try first."""
        self._space, self._seed, self._first = space, seed, first
        self._distributions = {name: _distribution(values) for name, values in space.items()}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # As a URI: an ordinary name would end at its first question mark.
        url = f"sqlite:///file:{quote(str((path / DATABASE).resolve()))}?uri=true"
        self._storage = optuna.storages.RDBStorage(url)
        self._study = optuna.create_study(
            study_name=_NAME,
            storage=self._storage,
            direction="maximize",
            load_if_exists=True,
            # Those that are not compared have no values, and make no median.
            pruner=optuna.pruners.MedianPruner(
                _NUM_NOT_PRUNED, _EPOCHS_NOT_PRUNED, n_min_trials=_NUM_NOT_PRUNED
            ),
        )

    def close(self) -> None:
        """Let go of the file."""
        self._storage.engine.dispose()

    @property
    def finished(self) -> list[Any]:
        """Optuna's records of the trials that came to an end, in their order."""
        return [one for one in self._whole() if one.state.is_finished()]

    def _whole(self) -> list[Any]:
        """The trials but for those of which a killed process left a part of the settings."""
        trials = self._study.get_trials(deepcopy=False)
        return [one for one in trials if one.params.keys() == self._space.keys()]

    def next_trial(self) -> Any:
        """The trial that an earlier process left running, else a new one."""
        whole = {one.number for one in self._whole()}
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for one in running:
            if one.number in whole:
                return optuna.trial.Trial(self._study, self._id(one))
            self._end(one, TrialState.FAIL)
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not whole and not waiting:
            space, first = self._space, self._first
            positions = {name: _position(values, first[name]) for name, values in space.items()}
            unplaced = [
                name
                for name, values in space.items()
                if first[name] in (_AUTO, None)
                or (isinstance(values, Between) and positions[name] != first[name])
            ]
            self._study.enqueue_trial(positions, user_attrs={_AUTO: unplaced})
        number = len(self.finished)
        (seed,) = np.random.SeedSequence((self._seed, number)).generate_state(1)
        self._study.sampler = optuna.samplers.TPESampler(seed=int(seed))
        return self._study.ask(self._distributions)

    def settings(self, trial: Any) -> dict[str, Any]:
        """The settings of a trial by name."""
        found: dict[str, Any] = {}
        for name, values in self._space.items():
            value = trial.params[name]
            if name in trial.user_attrs.get(_AUTO, ()):
                found[name] = self._first[name]
                continue
            is_real = isinstance(values, Between) and isinstance(value, float)
            choice = value if isinstance(values, Between) else values[value]
            found[name] = float(f"{value:.{_DIGITS}g}") if is_real else choice
        return found

    def complete(self, trial: Any, value: float) -> None:
        self._end(trial, TrialState.COMPLETE, value)

    def prune(self, trial: Any) -> None:
        self._end(trial, TrialState.PRUNED)

    def fail(self, trial: Any, reason: str) -> None:
        trial.set_user_attr("reason", reason)
        self._end(trial, TrialState.FAIL)

    def _end(self, trial: Any, state: TrialState, *values: float) -> None:
        self._storage.set_trial_state_values(self._id(trial), state, values or None)

    def _id(self, trial: Any) -> int:
        """The storage's number of a trial."""
        study_id = self._storage.get_study_id_from_name(_NAME)
        found: int = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        return found


@contextmanager
def open_study(
    path: Path, space: SearchSpace, seed: int, first: Mapping[str, Any]
) -> Iterator[Study]:
    """Yield a `Study`, closed at the end; RunError where its file fails it, as on a full disk."""
    try:
        with closing(Study(path, space, seed, first)) as study:
            yield study
    except (StorageInternalError, SQLAlchemyError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise RunError(
            f"{path / DATABASE} cannot be read or written: {cause}; the same command goes on once "
            "it can"
        ) from error


class Pruned(Exception):  # noqa: N818 (no mistake)
    """A trial did worse than the median of those before it, and its training was stopped."""


class Pruning(Callback):
    """Callback that reports each validation of a trial and stops it by raising `Pruned`."""

    def __init__(self, trial: Any, select_by: str) -> None:
        self._trial, self._select_by = trial, select_by

    def epoch_done(self, report: EpochReport) -> None:
        if report.evaluation is None:
            return
        with warnings.catch_warnings():
            # An epoch that is repeated after a kill has the value it had.
            warnings.filterwarnings("ignore", message=".*already reported", category=UserWarning)
            self._trial.report(report.evaluation[self._select_by], report.epoch)
        if self._trial.should_prune():
            raise Pruned


def _distribution(values: Between | tuple[Any, ...]) -> Any:
    """Optuna's form of a range or of choices, which are by position: it takes no lists."""
    if not isinstance(values, Between):
        return CategoricalDistribution(tuple(range(len(values))))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, log=values.log)
    return FloatDistribution(float(values.low), float(values.high), log=values.log)


def _position(values: Between | tuple[Any, ...], value: Any) -> Any:
    """A value as Optuna has it, moved into the range; the first choice where it is none.

    The middle of the range stands for auto.
    """
    if isinstance(values, Between):
        if value in (_AUTO, None):
            low, high = values.low, values.high
            value = (low * high) ** 0.5 if values.log else (low + high) / 2
            return int(value) if isinstance(low, int) and isinstance(high, int) else value
        return min(max(value, values.low), values.high)
    return values.index(value) if value in values else 0
