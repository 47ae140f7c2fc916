"""Base of the models whose weights are a quotient of a pair's sum: item-kNN and RP3beta.

Shape suffixes: I items of the catalogue.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch

from foretaste._util.formatting import memory
from foretaste.models.base import FitProgress
from foretaste.models.linear.pairs import Numbers, find_neighbors, found_bytes
from foretaste.models.linear.weights import LinearModel
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


class Formula(NamedTuple):
    """The weight from i to j: the pair's sum over ``of_source_I[i] * of_target_I[j] +
    shrinkage``."""

    entries: Entries
    of_source_I: Numbers
    of_target_I: Numbers
    shrinkage: float = 0.0


class NeighborsModel(LinearModel):
    """Keeps the neighbours of the highest weights, of equal weights those of the lowest index."""

    @property
    def cuts_sources(self) -> bool:
        """Whether each item keeps its strongest targets, and not each target its neighbours."""
        return False

    @abstractmethod
    def formula(self, histories: HistoryTensors) -> Formula:
        """The sums of pairs, and what they are divided by."""

    def training_bytes(self, device: torch.device) -> int:
        return self.weight_bytes() + found_bytes(self.num_items, self.num_neighbors)

    def fitting_note(self) -> str:
        return (
            f"finding up to {self.num_neighbors:,} neighbours for each of {self.num_items:,} "
            f"items, which takes about {memory(self.training_bytes(self.device))} of memory"
        )

    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories."""
        from foretaste.models.linear.kernels import Strength

        self.count_items(histories)
        entries, of_source_I, of_target_I, shrinkage = self.formula(histories)
        of_other_I, of_item_I = of_source_I, of_target_I
        if self.cuts_sources:
            of_other_I, of_item_I = of_target_I, of_source_I
        strength = Strength(of_other_I, of_item_I, shrinkage)
        found = find_neighbors(entries, self.num_neighbors, strength, progress)
        self.keep_neighbors(*found[:2], by_source=self.cuts_sources)
