"""Trials of a search, and the command line of the best one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste._util.formatting import option_words
from foretaste.measure.tables import Cell, Grid, Tabular


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of a search, and its settings."""

    number: int
    settings: Mapping[str, Any]
    """The searched settings."""
    state: str
    """``complete``, ``pruned`` (stopped below the median) or ``failed``."""
    value: float | None
    """Validation metric; for a pruned trial the last one, for a failed trial None."""
    run: Path
    reason: str | None
    """Error message of a failed trial."""


@dataclass(frozen=True, kw_only=True)
class Search(Tabular):
    """The trials of a search, in order; the validation part chooses the best."""

    path: Path
    """Directory of all runs, of the trials and of their table."""
    model: str
    dataset: Path
    select_by: str
    fixed: Mapping[str, Any]
    """The common settings of all trials."""
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The complete trial with the best value; the first of equal trials."""
        complete = [one for one in self.trials if one.state == "complete"]
        return max(complete, key=lambda one: one.value or 0.0)

    def command(self) -> str:
        """Return the command line of a training with the settings of the best trial."""
        words = option_words({**self.fixed, **self.best.settings})
        return shlex.join(["foretaste", "train", self.model, str(self.dataset), *words])

    def grid(self) -> Grid:
        """Return a table: a row per trial, with columns for searched settings and the metric."""
        names = self._names()
        rows = [
            (str(one.number), (*(_cell(one.settings.get(name)) for name in names), *_end(one)))
            for one in self.trials
        ]
        return Grid(headings=("trial", *names, self.select_by, ""), rows=tuple(rows))

    def _names(self) -> list[str]:
        """Return the settings that any trial has."""
        return list(dict.fromkeys(name for one in self.trials for name in one.settings))

    def notes(self) -> list[str]:
        """Return lines to print below the table."""
        best = self.best
        failed = [f"trial {one.number} failed: {one.reason}" for one in self.trials if one.reason]
        return [
            *failed,
            f"{self.select_by} of the validation part, which chose epochs and settings; the test "
            "part chose nothing",
            f"every run is kept in {self.path}; the best one is {best.run}, trial {best.number}",
            f"the same again: {self.command()}",
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat record per trial."""
        return [
            {
                "trial": one.number,
                **{name: _plain(one.settings.get(name)) for name in self._names()},
                "state": one.state,
                self.select_by: one.value,
                "run": str(one.run),
                "reason": one.reason,
            }
            for one in self.trials
        ]


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("-")
    return Cell(f"{value:.4g}" if isinstance(value, float) else str(_plain(value)))


def _end(trial: Trial) -> tuple[Cell, Cell]:
    value = "-" if trial.value is None else f"{trial.value:.4f}"
    return Cell(value), Cell("" if trial.state == "complete" else trial.state)
