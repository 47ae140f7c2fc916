"""Where a training is judged: the held-out part that chooses the epoch, and the final one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from foretaste.data.dataset import Dataset, HeldOut, Split
from foretaste.evaluation.definitions import parse_metric
from foretaste.evaluation.evaluate import evaluate, validation_rows
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import RecommenderModel
from foretaste.training.progress import Progress

TEST_LENGTHS = (1, 5, 10, 20, 50, 100)
"""List lengths of the final numbers."""


@dataclass
class Judging:
    """Ranks the held-out users of a dataset for one training."""

    dataset: Dataset
    candidates: str
    validation_users: int
    progress: Progress

    @property
    def selection_split(self) -> Split | None:
        """Where the epoch is chosen: validation; test where there is none; None without either."""
        splits: tuple[Split, ...] = ("validation", "test")
        return next((split for split in splits if self.dataset.has_split(split)), None)

    def select(self, model: RecommenderModel, select_by: str) -> Evaluation:
        """The evaluation that chooses the epoch, at the one list length it needs."""
        heldout, users = self._selection_users
        return self._evaluate(model, heldout, (parse_metric(select_by)[1],), users)

    def test(self, model: RecommenderModel) -> Evaluation | None:
        """The final numbers, over every held-out user; None where nothing is held out."""
        if not self.dataset.has_split("test"):
            return None
        return self._evaluate(model, self.dataset.heldout("test"), TEST_LENGTHS, None)

    @cached_property
    def _selection_users(self) -> tuple[HeldOut, NDArray[np.integer] | None]:
        split = self.selection_split
        assert split is not None
        heldout = self.dataset.heldout(split)
        if split == "test":
            return heldout, None
        seed = self.dataset.manifest.seed
        return heldout, validation_rows(heldout, self.validation_users, seed=seed)

    def _evaluate(
        self,
        model: RecommenderModel,
        heldout: HeldOut,
        k: tuple[int, ...],
        users: NDArray[np.integer] | None,
    ) -> Evaluation:
        manifest = self.dataset.manifest
        return evaluate(
            model,
            heldout,
            num_train_users=manifest.num_train_users,
            protocol=manifest.protocol,
            candidates=self.candidates,
            k=k,
            seed=manifest.seed,
            users=users,
            progress=partial(self.progress.evaluating, heldout.split),
        )
