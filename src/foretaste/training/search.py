"""Settings that are ``auto`` and chosen by a few fits on the validation part.

A climb, setting by setting: from its value by the rule to the next candidate, and on while the
metric grows; where the first step does not help, the other way. Features come last, and their fits
on top. Fits are counted and never timed, so that equal commands choose equally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste._util.climb import climb
from foretaste._util.memory import was_refused
from foretaste.data.dataset import Dataset, HeldOut
from foretaste.errors import TrainingError, UnsupportedError
from foretaste.evaluation.candidates import choose_users
from foretaste.evaluation.config import parse_metric
from foretaste.evaluation.evaluator import evaluate, validation_rows
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation, paired_difference
from foretaste.models.base import ClosedFormModel, RecommenderModel, SweepModel
from foretaste.models.batches import WholeData
from foretaste.models.config import ModelConfig
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import build_model
from foretaste.ops.histories import HistoryTensors
from foretaste.training.auto import followed_settings, selected_metric, sized
from foretaste.training.config import TrainingConfig
from foretaste.training.features import hand_features
from foretaste.training.validation import check_evaluation_fits

MOST_FITS = 10
"""Most fits of a search, the one by the rule included and those of features left out."""

_LIST_LENGTH = 20
"""Length of the lists in which new items are counted."""

_LEAST_GAIN = 1.005
"""The least factor by which a step must raise the metric: a smaller gain is often chance."""

_MOST_INTERACTIONS = 2_000_000
"""Interactions of a fit. Where there are more, a hash chooses users."""

_MOST_USERS = 2_000
"""Users of the validation part who are ranked. Where there are more, a hash chooses."""

_SWEEPS = (2, 2, 4)
"""Sweeps of a fit of a model with epochs, which is evaluated after 2, 4 and 8 of them."""

_FAILED = -1.0
"""Value of settings that do not fit the machine or the data."""


def chosen_settings(
    dataset: Dataset,
    model: str,
    asked: ModelConfig,
    config: TrainingConfig,
    device: torch.device,
    progress: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """Values that the validation part chooses for settings of ``asked`` that are ``auto``.

    Returns ``settings`` by name, the number of ``fits``, ``select_by``, and its ``value`` and
    ``value_by_rule``; with features what `Search.choose_features` returns. An empty dict where
    nothing is to be chosen, or nothing to choose by.
    """
    search = Search(dataset, model, asked, config, device, progress)
    is_open = search.candidates or search.feature_settings
    if not (config.search and is_open and dataset.has_split("validation")):
        return {}
    if not (dataset.manifest.num_interactions and search.heldout.num_users):
        return {}
    if (by_rule := search.value_of({})) == _FAILED:  # training says why
        return {}
    search.climb()
    features = search.choose_features()
    return {
        "settings": search.best,
        "fits": search.num_fits,
        "select_by": search.select_by,
        "value": search.value,
        "value_by_rule": by_rule,
        **({"features": features} if features else {}),
    }


class Search:
    """A search for settings: its data, and the best settings so far with their value."""

    def __init__(
        self,
        dataset: Dataset,
        model: str,
        asked: ModelConfig,
        config: TrainingConfig,
        device: torch.device,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self.dataset, self.model = dataset, model
        self.config, self.device, self.progress = config, device, progress
        self.select_by = selected_metric(config, dataset.manifest.protocol)
        candidates = sized(asked, dataset).candidates()
        self.candidates = [one for one in candidates if getattr(asked, one[0]) == "auto"]
        manifest = dataset.manifest
        self.has_new_items = manifest.num_listed_items > manifest.num_items
        self.counts_new_items = self.has_new_items and config.candidates == "full"
        self.feature_settings: list[dict[str, float]] = []
        if manifest.feature_columns and asked.uses_features:
            of_features = asked.feature_candidates.items()
            tried = {name: each for name, each in of_features if getattr(asked, name) == "auto"}
            self.feature_settings = [
                dict(zip(tried, values, strict=True))
                for values in product(*tried.values())
                if tried
            ]
        self.chooses_weight = any("feature_weight" in one for one in self.feature_settings)
        # Without features new items would be in no list.
        starts_without = self.chooses_weight and not self.has_new_items
        self.asked = asked.without_features() if starts_without else asked
        self.num_fits = 0
        self.best: dict[str, Any] = {}
        self.value = _FAILED
        self.evaluation: Evaluation | None = None
        self.values: dict[str, Any] = {}
        self.counts: dict[Any, Any] = {}

    def climb(self) -> None:
        """Find the best value of each setting, one after another."""
        ways = [
            [partial(self._step, name, values, way) for way in (1, -1)]
            for name, values in self.candidates
        ]
        # `value_of` keeps the best settings too: those of features come on top.
        climb(self.best, self.value, self.value_of, ways, _LEAST_GAIN)

    def _step(
        self, name: str, values: float | tuple[Any, ...], way: int, settings: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The settings with the next value of one, up or down; None if there is none."""
        value = self.values[name]
        if isinstance(values, float):
            other = float(f"{value * values**way:.3g}")
        elif value in values and 0 <= (place := values.index(value) + way) < len(values):
            other = values[place]
        else:
            return None
        return settings | {name: other} if self.num_fits < MOST_FITS else None

    def choose_features(self) -> dict[str, Any]:
        """Find the best weight and power of features; the other settings stay.

        Returns what features gain in the metric that chooses, ``gain`` with ``low`` and ``high``,
        and if there are new items, under candidates full, the share of ``lists`` that have one; an
        empty dict if nothing of features is to be chosen.
        """
        if not self.feature_settings:
            return {}
        others, without = self.best, self.evaluation
        for settings in self.feature_settings:
            if settings.items() - self.values.items():
                self.value_of(others | settings)
        self.best = self.best | {name: self.values[name] for name in self.feature_settings[0]}
        if self.chooses_weight and self.has_new_items:
            config = replace(self.asked, **others).without_features()
            fitted = self._measured(sized(config, self.dataset))
            without = None if fitted is None else fitted[1]
        assert self.evaluation is not None
        found: dict[str, Any] = {}
        if self.chooses_weight and without is not None and self.select_by in without.per_user:
            name = self.select_by
            gain = paired_difference(name, without.per_user[name], self.evaluation.per_user[name])
            found |= {"gain": gain.value, "low": gain.low, "high": gain.high}
        if self.counts_new_items:
            found["lists"] = self.evaluation[f"new_items@{_LIST_LENGTH}"]
        return found

    def value_of(self, settings: dict[str, Any]) -> float:
        """The metric with some settings. They are kept if they are the best so far."""
        most_fits = MOST_FITS + len(self.feature_settings)
        self.progress("choosing settings", self.num_fits, most_fits)
        config = sized(replace(self.asked, **settings), self.dataset)
        if (found := self._measured(config)) is None:
            return _FAILED
        model, best = found
        # `_FAILED` is negative, so the first value is above it by any factor.
        if (value := best[self.select_by]) > _LEAST_GAIN * self.value:
            self.best, self.value, self.evaluation = settings, value, best
            self.values = asdict(config) | followed_settings(model)
        return value

    def _measured(self, config: ModelConfig) -> tuple[RecommenderModel, Evaluation] | None:
        """A model of these settings and its best evaluation; None if it cannot be fitted."""
        self.num_fits += 1
        found: list[Evaluation] = []
        try:
            for model in self._fitted(config):
                found.append(self._evaluated(model))
        except Exception as error:  # memory that is refused too: a candidate may need more
            if isinstance(error, TrainingError | UnsupportedError) or was_refused(error):
                return None
            raise
        # The best of 2, 4 and 8 sweeps: settings are compared, not the number of sweeps.
        return model, max(found, key=lambda one: one[self.select_by])

    def _evaluated(self, model: RecommenderModel) -> Evaluation:
        kind, length = parse_metric(self.select_by)
        return evaluate(
            model.eval(),
            self.heldout,
            candidates=self.config.candidates,
            k=(length, _LIST_LENGTH) if self.counts_new_items else (length,),
            evaluation_batch=self.config.evaluation_batch,
            coverage=kind == "coverage" or self.counts_new_items,
        )

    def _fitted(self, config: ModelConfig) -> Iterator[RecommenderModel]:
        """A model of these settings, each time it is to be evaluated."""
        manifest = self.dataset.manifest
        num_items = config.num_listed(
            self.dataset.manifest.num_items, self.dataset.manifest.num_listed_items
        )
        made_of = (self.model, config, manifest.num_train_users, num_items)
        check_model_fits(*made_of, self.device, to_train=True)
        model = build_model(*made_of).to(self.device)
        check_evaluation_fits(model, self.dataset, self.config)
        hand_features(self.dataset, model, self.device)
        histories = replace(self.histories, num_items=num_items)
        if not config.takes_weights:
            histories = replace(histories, weight=None)
        if isinstance(model, ClosedFormModel):
            model.counts = self.counts
            model.fit(histories, lambda *how_far: None)
            yield model
            return
        assert isinstance(model, SweepModel)
        # Of all interactions, of which `histories` may be a sample: what is auto gets the value of
        # the training.
        model.count_items(to_device(self.dataset.train.within(num_items), self.device))
        model.reset_parameters(self.config.seed)
        batch = model.make_batches(histories, batch_size=1, seed=self.config.seed)
        assert isinstance(batch, WholeData)
        for num_sweeps in _SWEEPS:
            for _ in range(num_sweeps):
                model.train().sweep(batch)
            yield model

    @cached_property
    def heldout(self) -> HeldOut:
        """The users who choose; those known from training are fitted too."""
        heldout = self.dataset.heldout("validation", order=self.asked.uses_order)
        heldout = heldout.rows(validation_rows(heldout, _MOST_USERS))
        is_fitted_U = np.ones(self.dataset.manifest.num_users, dtype=bool)
        is_fitted_U[: len(self._is_fitted)] = self._is_fitted
        return heldout.rows(np.flatnonzero(is_fitted_U[heldout.user_index]))

    @cached_property
    def _is_fitted(self) -> NDArray[np.bool_]:
        """True of the training users who are fitted."""
        manifest = self.dataset.manifest
        users = np.arange(manifest.num_train_users)
        share = min(1.0, _MOST_INTERACTIONS / manifest.num_interactions)
        is_fitted_U = np.zeros(len(users), dtype=bool)
        is_fitted_U[choose_users(users, round(share * len(users)), manifest.seed)] = True
        return is_fitted_U

    @cached_property
    def histories(self) -> HistoryTensors:
        """Histories of the users who are fitted, with weights if there are some.

        Other users have empty histories, so users keep their numbers.
        """
        users = range(self.dataset.manifest.num_train_users)
        train = self.dataset.train_part(users, order=self.asked.uses_order)
        is_fitted_N = np.repeat(self._is_fitted, np.diff(train.offsets))
        histories = to_device(train.where(is_fitted_N), self.device)
        if (weight := self.dataset.train_weights(users)) is None:
            return histories
        return replace(histories, weight=torch.tensor(weight[is_fitted_N], device=self.device))
