"""Evaluation during a training, by the part that chooses epoch and fold-in, and at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from foretaste.data.dataset import Dataset, HeldOut, Split
from foretaste.evaluation.config import parse_metric
from foretaste.evaluation.evaluator import evaluate, validation_rows
from foretaste.evaluation.ranking import check_ranking_fits
from foretaste.evaluation.result import Evaluation, paired_difference
from foretaste.models.base import IterativeModel, RecommenderModel
from foretaste.models.config import Setting
from foretaste.models.memory import training_bytes
from foretaste.models.popularity.config import PopularityConfig
from foretaste.models.popularity.model import Popularity
from foretaste.training.auto import selected_metric
from foretaste.training.callbacks import BesidePopularity
from foretaste.training.config import TrainingConfig
from foretaste.training.strategy import Strategy

TEST_LENGTHS = (1, 5, 10, 20, 50, 100)
"""List lengths of the final numbers."""


def check_evaluation_fits(
    model: RecommenderModel, dataset: Dataset, config: TrainingConfig
) -> None:
    """Raise UnsupportedError if the catalogue cannot be ranked beside the training's memory."""
    batch, manifest = config.evaluation_batch, dataset.manifest
    if batch is None and (manifest.protocol == "none" or config.candidates != "full"):
        return
    kept = 0
    if isinstance(model, IterativeModel):  # gradients and moments come with the first step
        kept = training_bytes(model, model.device, bool(config.ema)) - model.weight_bytes()
    check_ranking_fits(batch, manifest.num_users, model.num_items, model.device, kept)


@dataclass
class Validation:
    """Ranks the held-out users of a dataset for one training."""

    dataset: Dataset
    model: RecommenderModel
    config: TrainingConfig
    strategy: Strategy
    progress: Callable[[str, int, int], None]
    """Called while users are ranked, with the part and how many of its users are done."""
    final: Evaluation | None = field(default=None, init=False)
    """The final numbers, if the evaluation of the best epoch so far has them all."""
    _selected: Evaluation | None = field(default=None, init=False)
    _best: Evaluation | None = field(default=None, init=False)

    @property
    def selection_split(self) -> Split | None:
        """The part that chooses the epoch: validation, else test; None without either."""
        splits: tuple[Split, ...] = ("validation", "test")
        return next((split for split in splits if self.dataset.has_split(split)), None)

    @cached_property
    def metric(self) -> str:
        """The metric that chooses."""
        return selected_metric(self.config, self.dataset.manifest.protocol)

    def select(self, *, is_only: bool = False) -> Evaluation:
        """Evaluate at the list length of the metric that chooses.

        If this may become the final result, it evaluates at all final lengths. ``is_only`` is True
        if no other epoch is evaluated: then the numbers are the final ones, over every user.
        """
        if is_only and self.selection_split == "test":
            self._selected = self.final = self.test()
            assert self._selected is not None
            return self._selected
        lengths = TEST_LENGTHS if self._is_final else ()
        kind, length = parse_metric(self.metric)
        # Lists cost at least as much as ranks.
        coverage = kind == "coverage"
        self._selected = self._evaluate(self._validation_part, (*lengths, length), coverage)
        return self._selected

    def keep(self) -> None:
        """Keep the last evaluation as the best epoch's."""
        self._best = self._selected
        if self._is_final:
            self.final = self._selected

    @property
    def _is_final(self) -> bool:
        # The best epoch's evaluation on the test part may serve as the final one. But ranks up to
        # 100 of the whole catalogue in every epoch cost more than one ranking in the end.
        return self.selection_split == "test" and self.config.candidates != "full"

    def test(self) -> Evaluation | None:
        """Return the final numbers, over every held-out user; None if nothing is held out.

        The list length of the metric that chooses is among them.
        """
        if not self.dataset.has_split("test"):
            return None
        lengths = (*TEST_LENGTHS, parse_metric(self.metric)[1])
        return self._evaluate(self._test_part, lengths, coverage=True)

    def beside_popularity(self, test: Evaluation | None) -> BesidePopularity | None:
        """Return the model beside popularity, on the users who choose the epoch; on at most as many
        users of the test part if nothing chooses. None for popularity itself, if nothing is held
        out, or for a metric without values of users."""
        model, (kind, length) = self.model, parse_metric(self.metric)
        if isinstance(model, Popularity) or kind == "coverage":
            return None
        if isinstance(model, IterativeModel) and self.selection_split is not None:
            users, own = self._validation_part, self._best or self.select()
        elif test is not None:
            own, users = test, self._test_part
            users = users.rows(validation_rows(users, self.config.validation_users))
        else:
            return None
        counts = Popularity(PopularityConfig(), model.num_users, model.num_items, model.users)
        counts.to(model.device).item_count_I.copy_(model.item_count_I)
        baseline = self._evaluate(users, (length,), coverage=False, model=counts)
        is_one = np.isin(own.user_index, baseline.user_index)
        values = own.per_user[self.metric][is_one]
        gain = paired_difference(self.metric, baseline.per_user[self.metric], values)
        return BesidePopularity(
            metric=self.metric,
            value=baseline[self.metric],
            gain=gain.value,
            low=gain.low,
            high=gain.high,
        )

    def choose_fold_in(
        self, best_value: float | None
    ) -> tuple[dict[str, Setting], Evaluation | None]:
        """Let the model choose its fold-in settings by the new users of the validation part.

        Returns the chosen settings and their evaluation. The evaluation is None if the settings of
        training stay the best, with which the best epoch had ``best_value``.
        """
        assert isinstance(self.model, IterativeModel)
        if best_value is None or not self._has_new_users():
            return {}, None
        found: dict[float, Evaluation] = {}

        def value() -> float:
            evaluation = self.select()
            value = self.strategy.broadcast(evaluation[self.metric])
            found.setdefault(value, evaluation)  # the first of equal evaluations is kept
            return value

        chosen, best = self.model.choose_fold_in(value, best_value)
        return chosen, found[best] if best > best_value else None

    def _has_new_users(self) -> bool:
        """Return True if there is a validation part, and it has new users with a history."""
        if self.selection_split != "validation":
            return False
        users = self._validation_part
        is_new = users.user_index >= users.num_train_users
        return bool((users.history.lengths()[is_new] > 0).any())

    @cached_property
    def _validation_part(self) -> HeldOut:
        """The users who choose the epoch."""
        split = self.selection_split
        assert split is not None
        heldout = self._heldout(split)
        # A target refers to all users; few sampled candidates are cheap to rank.
        if split == "test" and (self.config.target is not None or self.config.candidates != "full"):
            return heldout
        return heldout.rows(validation_rows(heldout, self.config.validation_users))

    @cached_property
    def _test_part(self) -> HeldOut:
        """All users of the test part, read at the end."""
        return self._heldout("test")

    def _heldout(self, split: Split) -> HeldOut:
        """Return a held-out part, with what the users of the model have in training."""
        order = self.model.config.uses_order
        return self.dataset.heldout(split, self.model.users, order=order)

    def _evaluate(
        self,
        heldout: HeldOut,
        k: tuple[int, ...],
        coverage: bool,
        model: RecommenderModel | None = None,
    ) -> Evaluation:
        return evaluate(
            model or self.model,
            heldout,
            candidates=self.config.candidates,
            k=k,
            evaluation_batch=self.config.evaluation_batch,
            coverage=coverage,
            progress=partial(self.progress, heldout.split),
            ranking=self.strategy.ranking,
        )
