"""Base of the models whose weights are a quotient of a pair's sum: item-kNN and RP3beta.

Shape suffixes: I items of the catalogue.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from foretaste.models.base import FitProgress
from foretaste.models.linear.pairs import Numbers, entries_of_features, find_neighbors
from foretaste.models.linear.weights import MOST_COUNTED, LinearModel
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


class NeighborsModel(LinearModel):
    """Keeps the neighbours of the highest weights, and the lowest index among equal weights."""

    @property
    def cuts_sources(self) -> bool:
        """Whether each item keeps its strongest targets, and not each target its neighbours."""
        return False

    @abstractmethod
    def formula(self, histories: HistoryTensors) -> tuple[Entries, Numbers, Numbers, float]:
        """Return what is counted; and the two numbers [I] of the sources and of the targets whose
        product, with the last number added, divides the sum of a pair."""

    def fitting_note(self, histories: HistoryTensors) -> str:
        return (
            f"finding up to {self.num_neighbors:,} neighbours for each of {self.num_items:,} "
            f"items, {self.fitting_needs(histories)}"
        )

    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories."""
        from foretaste.models.linear.kernels import Strength

        self.count_items(histories)
        entries, of_source_I, of_target_I, shrinkage = self.formula(histories.newest(MOST_COUNTED))
        strength = Strength(of_source_I, of_target_I, shrinkage)
        if self.cuts_sources:
            strength = Strength(of_target_I, of_source_I, shrinkage)
        other_IK, weight_IK, _ = find_neighbors(
            entries,
            entries_of_features(None, self.num_items),
            self.num_neighbors,
            strength,
            progress,
        )
        self.keep_neighbors(other_IK, weight_IK, by_source=self.cuts_sources)
