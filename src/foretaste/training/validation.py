"""Evaluation during a training: of the part that chooses the epoch and the prior, and the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretaste.data.dataset import Dataset, HeldOut, Split
from foretaste.errors import SettingError
from foretaste.evaluation.config import parse_metric
from foretaste.evaluation.evaluator import evaluate, validation_rows
from foretaste.evaluation.ranking import check_ranking_fits
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import IterativeModel, RecommenderModel
from foretaste.models.config import PRIOR_WEIGHT
from foretaste.models.memory import training_bytes
from foretaste.training.config import TrainingConfig

if TYPE_CHECKING:
    from foretaste.training.early_stopping import EarlyStopping

TEST_LENGTHS = (1, 5, 10, 20, 50, 100)
"""List lengths of the final numbers."""

_PRIOR_FACTOR = 0.3
"""From one weight of the prior to the next smaller one."""


def check_candidates(dataset: Dataset, candidates: str) -> None:
    """Raise SettingError where ``candidates`` is ``fixed`` and a part to evaluate has none."""
    splits: tuple[Split, ...] = ("validation", "test")
    for split in splits if candidates == "fixed" else ():
        if dataset.has_split(split) and not dataset.has_candidates(split):
            raise SettingError(
                f"candidates is fixed, and none came with the {split} part of {dataset.path}; "
                "train with full or sampled-99, and see foretaste evaluate --candidates fixed for "
                "parts that have them"
            )


def check_evaluation_fits(
    model: RecommenderModel, dataset: Dataset, config: TrainingConfig
) -> None:
    """UnsupportedError where the catalogue cannot be ranked beside what training keeps."""
    batch, manifest = config.evaluation_batch, dataset.manifest
    if batch is None and (manifest.protocol == "none" or config.candidates != "full"):
        return
    kept = 0
    if isinstance(model, IterativeModel):  # gradients and moments come with the first step
        kept = training_bytes(model, model.device, bool(config.ema)) - model.weight_bytes()
    check_ranking_fits(batch, manifest.num_users, model.share.most_items, model.device, kept)


@dataclass
class Validation:
    """Ranks the held-out users of a dataset for one training, by all ranks of its model."""

    dataset: Dataset
    model: RecommenderModel
    config: TrainingConfig
    progress: Callable[[str, int, int], None]
    """Called while users are ranked, with the part and how many of its users are done."""

    @property
    def selection_split(self) -> Split | None:
        """The part that chooses the epoch: validation, else test; None without either."""
        splits: tuple[Split, ...] = ("validation", "test")
        return next((split for split in splits if self.dataset.has_split(split)), None)

    def select(self, select_by: str) -> Evaluation:
        """The evaluation that chooses the epoch, at the one list length it needs."""
        heldout, users = self._validation_part
        return self._evaluate(heldout, (parse_metric(select_by)[1],), users)

    def test(self, select_by: str | None) -> Evaluation | None:
        """The final numbers, over every held-out user; None where nothing is held out.

        The list length that chose the epoch is among them.
        """
        if not self.dataset.has_split("test"):
            return None
        chosen = () if select_by is None else (parse_metric(select_by)[1],)
        return self._evaluate(self._heldout("test"), TEST_LENGTHS + chosen, None)

    def chosen_prior_weight(self, best: EarlyStopping) -> float | None:
        """The weight of the prior for new users that is best for those of the validation part.

        It climbs from the weight that training used, first to smaller ones, while the selected
        metric grows; the model and ``best`` have what it came to. None where there is nothing to
        choose. No weight suits all data: docs/results.md, "The prior of new users".
        """
        prior = dict(self.model.named_buffers()).get(PRIOR_WEIGHT)
        if prior is None or best.best_value is None or not self._has_new_users:
            return None

        def set_to(weight: float) -> None:
            prior.fill_(weight)
            self.model.eval()  # forgets what came of the weight before

        def value_at(weight: float) -> float:
            set_to(weight)
            value = self.select(best.plan.select_by)[best.plan.select_by]
            return float(self.model.share.ranks.agreed(value))

        # Not what the model has: a training that was killed here has kept another.
        first = weight = float(self.model.config.prior_weight)
        for factor in (_PRIOR_FACTOR, 1 / _PRIOR_FACTOR):
            while (value := value_at(weight * factor)) > best.best_value:
                weight, best.best_value = weight * factor, value
            if weight != first:
                break
        set_to(weight)
        return weight

    @property
    def _has_new_users(self) -> bool:
        """True where the validation part chooses, and has users that training has not."""
        if self.selection_split != "validation":
            return False
        user_index = self._validation_part[0].user_index
        return bool((user_index >= self.dataset.manifest.num_train_users).any())

    @cached_property
    def _validation_part(self) -> tuple[HeldOut, NDArray[np.integer] | None]:
        split = self.selection_split
        assert split is not None
        heldout = self._heldout(split)
        if split == "test":
            return heldout, None
        seed = self.dataset.manifest.seed
        return heldout, validation_rows(heldout, self.config.validation_users, seed=seed)

    def _heldout(self, split: Split) -> HeldOut:
        """A held-out part, with what the users and items of this rank have in training."""
        share = self.model.share
        return self.dataset.heldout(split, share.users, share.items)

    def _evaluate(
        self, heldout: HeldOut, k: tuple[int, ...], users: NDArray[np.integer] | None
    ) -> Evaluation:
        manifest = self.dataset.manifest
        return evaluate(
            self.model,
            heldout,
            num_train_users=manifest.num_train_users,
            protocol=manifest.protocol,
            candidates=self.config.candidates,
            k=k,
            seed=manifest.seed,
            users=users,
            batch=self.config.evaluation_batch,
            progress=partial(self.progress, heldout.split),
        )
