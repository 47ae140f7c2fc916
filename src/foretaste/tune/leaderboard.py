"""Leaderboard of a competition: a table of its models, best first, and advice."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretaste._util.formatting import compact, memory, option_words
from foretaste.evaluation.result import Difference, Evaluation
from foretaste.measure.tables import Cell, Grid, Tabular, metric_cell

BLEND = "blend"
"""Name of the last row of a competition, a blend of the models."""

LEVEL = 0.05
"""Probability of at least one star if no model differs from the best."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model of a competition: its run and metrics, or the reason why it has none."""

    model: str
    run: Path | None = None
    evaluation: Evaluation | None = None
    to_best: Difference | None = None
    """Difference to the best model on the same users, by the metric that ranks the models."""
    elapsed_s: float | None = None
    """Seconds of the training and its evaluations; if settings were searched, those of the best
    run."""
    memory_mib: float | None = None
    """Peak memory of the training, from its run."""
    epoch_of_test: bool = False
    """True if the epoch was chosen, among several, on the test part."""
    members: tuple[tuple[str, float], ...] = ()
    """The models of a blend, with their shares of the sum."""
    reason: str | None = None

    def recipe(self) -> str:
        """Return the models of a blend, each after its share, as text."""
        return ", ".join(f"{weight:g} {model}" for model, weight in self.members)

    @property
    def users_per_s(self) -> float | None:
        """Users ranked per second in the evaluation."""
        found = self.evaluation
        return None if found is None else found.num_users / max(found.elapsed_s, 1e-9)

    def as_dict(self, metrics: Sequence[str]) -> dict[str, Any]:
        """Return a flat record with the same names in every entry; None for a missing number."""
        record: dict[str, Any] = {
            "model": self.model,
            "run": None if self.run is None else str(self.run),
            "reason": self.reason,
        }
        for name in metrics:
            found = self.evaluation and self.evaluation.metrics.get(name)
            record |= {
                name: found and found.value,
                f"{name}_low": found and found.low,
                f"{name}_high": found and found.high,
            }
        to_best = self.to_best
        return record | {
            "to_best": to_best and to_best.value,
            "to_best_low": to_best and to_best.low,
            "to_best_high": to_best and to_best.high,
            "elapsed_s": self.elapsed_s,
            "users_per_s": self.users_per_s,
            "memory_mib": self.memory_mib,
        }


@dataclass(frozen=True, kw_only=True)
class Leaderboard(Tabular):
    """Models trained and measured on one dataset: best first, then failed ones, and the blend."""

    path: Path
    """Directory of all runs and of the table."""

    select_by: str
    """Metric that ranks the models."""

    metrics: tuple[str, ...]
    """Metrics of the table."""

    entries: tuple[Entry, ...]

    trials: int = 0
    """Trials of the search for each model's settings; 0 for default settings."""

    given: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all trainings that differ from the defaults."""

    gains: Mapping[str, Difference] = field(default_factory=dict)
    """Gain by the weights of interactions, on the same users, by model."""

    @property
    def best(self) -> Entry:
        """The single model with the best value of `select_by`."""
        return self.entries[0]

    def clear(self) -> set[str]:
        """Return models that differ from the best beyond chance, corrected for all pairs of models.

        A model is in the set if its p-value is at most `LEVEL` divided by the number of pairs
        (Bonferroni).
        """
        # All pairs count, and not only the pairs with the best, because the same users choose the
        # best. With eleven equal models, Holm's procedure over the ten comparisons with the best
        # put a star into 15 % of 20,000 simulated tables, and this procedure into 4 %.
        p_values = {one.model: one.to_best.p_value for one in self.entries if one.to_best}
        num_pairs = len(p_values) * (len(p_values) + 1) // 2
        return {model for model, p_value in p_values.items() if p_value <= LEVEL / num_pairs}

    def clearly_worse(self) -> set[str]:
        """Return the models of `clear` that are worse; a blend may be better."""
        clear = self.clear()
        return {
            one.model
            for one in self.entries
            if one.model in clear and one.to_best is not None and one.to_best.value < 0
        }

    def grid(self) -> Grid:
        """Return the table: metrics with intervals, difference to the best, time, speed, memory."""
        headings = (*self.metrics, f"{self.select_by} to best", "training", "users/s", "memory")
        clear = self.clear()
        rows = [(entry.model, self._cells(entry, clear)) for entry in self.entries]
        return Grid(headings=("", *headings), rows=tuple(rows))

    def _cells(self, entry: Entry, clear: set[str]) -> tuple[Cell, ...]:
        found = {} if entry.evaluation is None else entry.evaluation.metrics
        peak, speed = entry.memory_mib, entry.users_per_s
        to_best = metric_cell(None)
        if entry.to_best is not None:
            star = " *" if entry.model in clear else ""
            to_best = Cell(f"{entry.to_best.value:+.4f}{star}", entry.to_best.interval())
        return (
            *(metric_cell(found.get(name)) for name in self.metrics),
            Cell("best") if entry is self.best else to_best,
            Cell("-" if entry.elapsed_s is None else _seconds(entry.elapsed_s)),
            Cell("-" if speed is None else compact(speed)),
            Cell("-" if peak is None else memory(peak * 2**20)),
        )

    def notes(self) -> list[str]:
        """Return lines to print below the table; the advice is last."""
        failed = [f"{one.model} has no numbers: {one.reason}" for one in self.entries if one.reason]
        settings = "default settings"
        if self.trials:
            settings = f"settings found by {self.trials} trials a model, on the validation part"
        if self.given:
            settings += f", with {shlex.join(option_words(self.given))} given"
        assert self.best.evaluation is not None
        gains = [
            f"{model} {gain.value:+.4f} ({gain.interval()})" for model, gain in self.gains.items()
        ]
        return [
            *failed,
            settings,
            *([f"what weights gained, {self.select_by}: {', '.join(gains)}"] if gains else []),
            *self.best.evaluation.conditions(self.best.model),
            *self._flattery(),
            f"{self.select_by} to best: difference on the same users with its own 95 % interval, "
            "* if it is clear with all pairs of models counted; training includes its "
            "evaluations",
            f"every run is kept in {self.path}; the best one is {self.best.run}",
            *(f"{one.model} is {one.recipe()}" for one in self.entries if one.members),
            self.advice(),
        ]

    def _flattery(self) -> list[str]:
        """Return a note on models whose epochs the test part chose; empty without any."""
        named = ", ".join(one.model for one in self.entries if one.epoch_of_test)
        if not named:
            return []
        return [
            f"no validation part: the best epoch of {named} was chosen on the test part itself, so "
            "the numbers flatter"
        ]

    def advice(self) -> str:
        """Return a sentence with the model to take."""
        best, name = self.best, self.select_by
        value = best.evaluation and best.evaluation.metrics[name]
        num_measured = len(self._single())
        models = "1 model" if num_measured == 1 else f"{num_measured} models"
        text = f"take {best.model}: {value}, the best of {models}"
        worse = self.clearly_worse()
        others = (one.model for one in self._single() if one.to_best is not None)
        if alike := [model for model in others if model not in worse]:
            are = "is" if len(alike) == 1 else "are"
            text += f", though {', '.join(alike)} {are} not clearly worse"
        blend, difference = self.entries[-1], self.entries[-1].to_best
        if blend.members and difference is not None and blend.model in self.clear() - worse:
            text += (
                f"; a blend of {blend.recipe()} is better by {difference.value:.4f} "
                f"({difference.interval()}), and answers in the time of them together"
            )
        listing = [one.model for one in self._single() if _lists_new_items(one)]
        if listing and best.model not in listing:
            text += f"; new items are in lists of {', '.join(listing)} alone"
        floor = next((one for one in self.entries if one.model == "popularity"), None)
        is_beaten = floor is not None and floor is not best and floor.model not in alike
        if floor is not None and not is_beaten and num_measured > 1:
            text += "; nothing learned here is clearly better than popularity, so look for "
            if best.evaluation is None or best.evaluation.is_mostly_measured:
                text += "more data"
            else:
                text += (
                    "another split first (--protocol leave-one-out or held-out-users): "
                    f"{best.evaluation.share_unknown:.0%} of the users are new to every model and "
                    "answered in popularity order"
                )
        return text

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat record per model."""
        worse = self.clearly_worse()
        return [
            entry.as_dict(self.metrics) | {"is_clearly_worse": entry.model in worse}
            for entry in self.entries
        ]

    def _single(self) -> list[Entry]:
        """Return the models with metrics, without the blend."""
        return [one for one in self.entries if one.evaluation and one.model != BLEND]


def _lists_new_items(entry: Entry) -> bool:
    """Return True if a list of the model holds an item that training never saw."""
    found = {} if entry.evaluation is None else entry.evaluation.metrics
    return any(name.startswith("new_items@") and one.value > 0 for name, one in found.items())


def _seconds(number: float) -> str:
    return f"{number:,.1f} s" if number >= 1 else f"{number:.2g} s"
