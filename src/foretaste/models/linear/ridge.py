"""Base of the models that are a ridge regression of every item on the others: EASE and SLIST.

Shape suffixes: I items of the catalogue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste._util.formatting import memory
from foretaste.errors import TrainingError
from foretaste.models.base import FitProgress
from foretaste.models.linear.pairs import (
    COMPILER_BYTES,
    Numbers,
    count_tables,
    find_neighbors,
    found_bytes,
    gram_diagonal,
)
from foretaste.models.linear.solve import solve_all_pairs, solve_neighbors, solving_bytes
from foretaste.models.linear.weights import LinearModel
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


_MOST_TO_SHARE = 2 << 30
"""Memory of fits that share counts. Fits that take more count anew, as counts take memory too."""


class RidgeModel(LinearModel):
    """Weights of all pairs of items, or of the neighbours of each item, solved among these.

    The neighbours i of an item j have the largest ``A_ij / sqrt(G_ii)`` above zero, of equal ones
    the first (Ning & Karypis 2011, "SLIM"; Steck 2019, "Markov random fields for collaborative
    filtering"). Weights may be below zero.
    """

    # Added to a sum of weights, these scores would change none but zero; divided by a count of
    # users they are still normal in float32.
    unrelated_scale = 2.0**-100

    bytes_per_pair: int
    """Memory of a pair of items while the weights of all pairs are solved."""

    set_weight = 1.0
    """Weight of X'X in G and A."""

    counted_by: tuple[str, ...]
    """Settings that the counts depend on."""

    @abstractmethod
    def entries(self, histories: HistoryTensors) -> Entries:
        """The histories whose pairs make G and A."""

    @abstractmethod
    def penalties(self, diagonal_I: Numbers) -> Numbers:
        """What is added to the diagonal [I] of G."""

    def training_bytes(self, device: torch.device) -> int:
        if self.has_all_pairs:
            return COMPILER_BYTES + self.num_items**2 * self.bytes_per_pair
        found = found_bytes(self.num_items, self.num_neighbors, with_popular=True)
        return self.weight_bytes() + found + solving_bytes(self.num_items, self.num_neighbors)

    def fitting_note(self) -> str:
        size, needed = f"{self.num_items:,}", memory(self.training_bytes(self.device))
        if self.has_all_pairs:
            return f"inverting a {size} × {size} matrix, which takes about {needed} of memory"
        where = "" if self.device.type == "cpu" else " on the CPU"
        return (
            f"solving{where} for the weights of up to {self.num_neighbors:,} neighbours towards "
            f"each of {size} items, which takes about {needed} of memory"
        )

    @torch.no_grad()
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories; TrainingError where ``l2`` is too small for them."""
        self.count_items(histories)
        entries = self.entries(histories)
        try:
            if self.has_all_pairs:
                self._fit_all_pairs(entries, progress)
            else:
                found = self.neighbor_weights(entries, self.num_neighbors, progress)
                self.keep_neighbors(*found, by_source=False)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            l2 = self.config.l2
            raise TrainingError(
                f"items of the same users leave nothing to solve with l2 {l2:g}; raise --l2"
            ) from error

    def _counted(self, key: Any, count: Callable[[], Any]) -> Any:
        """The counts of an earlier fit whose settings for them were the same, else new ones.

        Those of the last fit alone are kept.
        """
        if self.counts is None or self.training_bytes(self.device) > _MOST_TO_SHARE:
            return count()
        key = key, *(getattr(self.config, name) for name in self.counted_by)
        if key not in self.counts:
            self.counts.clear()
            self.counts[key] = count()
        return deepcopy(self.counts[key])

    def _fit_all_pairs(self, entries: Entries, progress: FitProgress) -> None:
        tables = self._counted("all", lambda: count_tables(entries, progress))
        gram_II, *ordered = (torch.from_numpy(table).to(self.device) for table in tables)
        targets_II = None
        if ordered:
            sources_II, targets_II = ordered
            targets_II.add_(gram_II, alpha=self.set_weight)
            gram_II = sources_II.add_(gram_II, alpha=self.set_weight)
        del tables, ordered
        penalty_I = torch.from_numpy(self.penalties(gram_II.diagonal().cpu().numpy()))
        gram_II.diagonal().add_(penalty_I.to(self.device))
        solve_all_pairs(gram_II, targets_II, self.weight_II, progress)

    def neighbor_weights(
        self, entries: Entries, num_neighbors: int, progress: FitProgress
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The neighbours [I, K] of each item, -1 if there are fewer, and their weights."""
        from foretaste.models.linear.kernels import Strength

        entries = entries._replace(weight_U=self.set_weight * entries.weight_U)
        diagonal_I = gram_diagonal(entries)
        strength = Strength(np.sqrt(diagonal_I), np.ones(self.num_items), 0.0)
        # Which neighbours an item has depends on G and A.
        other_IK, value_IK, popular = self._counted(
            (num_neighbors, self.set_weight),
            lambda: find_neighbors(entries, num_neighbors, strength, progress, keeps_sums=True),
        )
        penalty_I = self.penalties(diagonal_I)
        solve_neighbors(entries, popular, penalty_I, other_IK, value_IK, progress)
        return other_IK, value_IK
