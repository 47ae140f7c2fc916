"""Lists of what is most similar to items of the catalogue, in batches of bounded memory.

Shape suffixes: B items asked about, I items of the catalogue.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste.evaluation.ranking import ABSENT, scoring
from foretaste.models.base import RecommenderModel
from foretaste.ops.precision_flags import products_as_set
from foretaste.recommend.lists import Lists, Made, batches
from foretaste.recommend.shelf import reason_for_fewer


class SimilarListMaker:
    """Makes lists of the k items most similar to each of some items, itself left out."""

    def __init__(self, model: RecommenderModel, *, k: int) -> None:
        self.model = model
        self.k = k
        self.num_columns = model.num_items
        self.num_places = min(k, model.num_items - 1)
        self._lowered: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What callers should know of lists made so far."""
        return (self._lowered,) if self._lowered else ()

    def make(self, item_index: NDArray[np.int64]) -> Made:
        """Lists for items of the catalogue."""
        lists = Lists.empty(len(item_index), self.num_places)
        with scoring(self.model), products_as_set(self.model.device) as self._lowered:
            for rows in batches(len(item_index), self.num_columns, self.model.device):
                item_index_B = torch.tensor(item_index[rows], device=self.model.device)
                score_BI = self.model.similarity(item_index_B)
                score_BI = score_BI.scatter(1, item_index_B[:, None], ABSENT)
                lists.put(rows, Lists.best(score_BI, self.num_places))
        return Made(lists, np.ones(len(item_index), dtype=np.int64), [[] for _ in item_index])

    def reasons(self, lists: Lists) -> list[list[str]]:
        """What to say of each list: why it is short, and notes on all."""
        others = "other item{s} in the catalogue"
        fewer = reason_for_fewer(self.num_places, self.k, self.num_columns - 1, others)
        return [[*([fewer] if fewer else []), *self.notes]] * len(lists.length)
