"""Base of the models that are a ridge regression of every item on the others: EASE and SLIST.

Shape suffixes: I items of the catalogue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.errors import TrainingError
from foretaste.models.base import FitProgress
from foretaste.models.linear.pairs import (
    CPU,
    LARGEST_VALUE,
    MOST_POPULAR,
    Neighbors,
    Numbers,
    add_pairs,
    count_tables,
    entries_of_features,
    find_neighbors,
    gram_diagonal,
)
from foretaste.models.linear.weights import MOST_COUNTED, LinearModel
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.inverse import invert_
from foretaste.ops.least_squares import solve_systems
from foretaste.ops.limits import LIMITS
from foretaste.ops.workers import parallel_map

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


_Counts = TypeVar("_Counts")

_BYTES_PER_NUMBER = 24
"""A system is float64, and copied to be padded and to be factorized."""

_MOST_TO_SHARE = 2 << 30
"""Memory of fits that share counts. Larger fits count again, because counts take memory too."""


class RidgeModel(LinearModel):
    """Weights of all pairs of items, or of the neighbours of each item, solved among these.

    The neighbours i of an item j have the largest ``A_ij / sqrt(G_ii)`` above zero, of equal ones
    the first (Ning & Karypis 2011, "SLIM"; Steck 2019, "Markov random fields for collaborative
    filtering"). Weights may be below zero.

    A feature value is a user who has all of its items (Jeunen et al. 2020, "Closed-form models for
    collaborative filtering with side-information"): X'X gets ``E = F diag(w) F'`` with F the values
    of the items and ``w = feature_weight * (items of the value) ^ -feature_power``. The neighbours
    of an item that nobody has are the items that share the most weight with the item; if weights
    are equal, the items with the most users come first. The quotient would choose the rarest items,
    which stand in no history. The weights towards an item that nobody has are multiplied by
    ``new_item_factor``.
    """

    # These scores, added to a sum of weights, change no sum but zero; divided by a count of users
    # they are still normal in float32.
    unrelated_scale = 2.0**-100

    bytes_per_pair: int
    """Memory of a pair of items while the weights of all pairs are solved."""

    set_weight = 1.0
    """Weight of X'X in G and A."""

    counted_by: tuple[str, ...]
    """Settings that change the counts."""

    _features: HistoryTensors | None = None

    def take_features(self, features: HistoryTensors) -> None:
        """Take the items of each feature value, one row a value; called before `fit`."""
        self._features = features

    @abstractmethod
    def entries(self, histories: HistoryTensors) -> Entries:
        """Return the histories whose pairs make G and A."""

    @abstractmethod
    def penalties(self, diagonal_I: Numbers) -> Numbers:
        """Return what is added to the diagonal [I] of G."""

    def training_bytes(self, device: torch.device) -> int:
        if self.has_all_pairs:
            # A pair's numbers include its weight.
            pairs = self.num_items**2 * self.bytes_per_pair
            return super().training_bytes(device) - self.weight_bytes() + pairs
        num_popular, width = min(self.num_items, MOST_POPULAR), self.num_neighbors
        numbers = max(width**2, min(LIMITS["cpu"].neighbor_numbers, self.num_items * width**2))
        systems = _BYTES_PER_NUMBER * torch.get_num_threads() * numbers
        return super().training_bytes(device) + 4 * num_popular * (num_popular + 1) + systems

    def fitting_note(self, histories: HistoryTensors) -> str:
        size, needs = f"{self.num_items:,}", self.fitting_needs(histories)
        if self.has_all_pairs:
            return f"inverting a {size} × {size} matrix, {needs}"
        where = "" if self.device.type == "cpu" else " on the CPU"
        return (
            f"solving{where} for the weights of up to {self.num_neighbors:,} neighbours towards "
            f"each of {size} items, {needs}"
        )

    @torch.no_grad()
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories; TrainingError if ``l2`` is too small for them."""
        self.count_items(histories)
        entries = self.entries(histories.newest(MOST_COUNTED))
        try:
            if self.has_all_pairs:
                self._fit_all_pairs(entries, progress)
                if self.config.new_item_factor != 1.0:
                    self.weight_II *= self._target_factors()
            else:
                other_IK, weight_IK = self.neighbor_weights(entries, self.num_neighbors, progress)
                weight_IK *= self._target_factors().cpu().numpy()[:, None]
                self.keep_neighbors(other_IK, weight_IK, by_source=False)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            l2 = self.config.l2
            raise TrainingError(
                f"items of the same users leave nothing to solve with l2 {l2:g}; raise --l2"
            ) from error

    def _target_factors(self) -> Tensor:
        """Return the factor of the weights towards each item, float32 [I]: scores sum weights."""
        one_I = torch.ones_like(self.item_count_I)
        return one_I.masked_fill_(self.item_count_I == 0, self.config.new_item_factor)

    def _weigh_features(self, features: HistoryTensors | None, factor: float = 1.0) -> Entries:
        """Return feature values as users, with their weights times a factor."""
        weight, power = factor * self.config.feature_weight, self.config.feature_power
        return entries_of_features(features, self.num_items, weight, power)

    def _reuse_counts(self, key: Hashable, count: Callable[[], _Counts]) -> _Counts:
        """Return the last fit's counts if its settings for counts were the same, else new counts.

        Only the last fit's counts are kept. Counts of a few neighbours belong to one
        ``set_weight``: counting takes 3 to 12 % of the fit, and writing the sums of all pairs down,
        to choose other neighbours by them, took as long as counting the pairs two to four times.
        """
        if self.counts is None or self.training_bytes(self.device) > _MOST_TO_SHARE:
            return count()
        key = key, self.num_items, *(getattr(self.config, name) for name in self.counted_by)
        if key not in self.counts:
            self.counts.clear()
            self.counts[key] = count()
        counts: _Counts = deepcopy(self.counts[key])
        return counts

    def _fit_all_pairs(self, entries: Entries, progress: FitProgress) -> None:
        table_3II = self._reuse_counts("all", lambda: count_tables(entries, progress))
        for _ in add_pairs(self._weigh_features(self._features), table_3II[:1]):
            pass
        gram_II, *ordered = torch.from_numpy(table_3II).to(self.device)
        targets_II = None
        if ordered:
            sources_II, targets_II = ordered
            targets_II.add_(gram_II, alpha=self.set_weight)
            gram_II = sources_II.add_(gram_II, alpha=self.set_weight)
        penalty_I = torch.from_numpy(self.penalties(gram_II.diagonal().cpu().numpy()))
        gram_II.diagonal().add_(penalty_I.to(self.device))
        solve_all_pairs(gram_II, targets_II, self.weight_II, progress)

    def neighbor_weights(
        self, entries: Entries, num_neighbors: int, progress: FitProgress
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the neighbours [I, K] of each item, -1 if there are fewer, and their weights."""
        from foretaste.models.linear.kernels import Strength

        entries = entries._replace(weight_U=self.set_weight * entries.weight_U)
        features = proposing = self._features
        if features is not None:
            is_small_V = features.lengths() <= LARGEST_VALUE
            proposing = features.rows(is_small_V.nonzero()[:, 0])
        valued = self._weigh_features(features, self.set_weight)
        diagonal_I = gram_diagonal(entries) + gram_diagonal(valued)
        strength = Strength(np.sqrt(diagonal_I), np.ones(self.num_items), 0.0)
        proposed = self._weigh_features(proposing, self.set_weight)
        # Which neighbours an item has depends on G and A.
        settings = self.set_weight, self.config.feature_weight, self.config.feature_power
        found = self._reuse_counts(
            (num_neighbors, *settings),
            lambda: find_neighbors(
                entries, proposed, num_neighbors, strength, progress, keeps_sums=True
            ),
        )
        penalty_I = self.penalties(diagonal_I)
        solve_neighbors(entries, valued, found, penalty_I, progress)
        return found.other_IK, found.value_IK


def solve_all_pairs(
    gram_II: Tensor, targets_II: Tensor | None, weight_II: Tensor, progress: FitProgress
) -> None:
    """Write the weights of all pairs; raises `torch.linalg.LinAlgError` if there are none.

    With ``P = (G + R)⁻¹`` they are ``B = P A - P diag(diag(P A) / diag(P))``. Without A, which is
    then G, that is ``-P / diag(P)`` beside the diagonal, by columns.

    Args:
        gram_II: ``G + R``, float64, overwritten.
        targets_II: A', float64, or None if A is G.
        weight_II: B.
    """
    num_items = len(gram_II)
    # In float64: beside the counts of popular items float32 would round a small penalty away.
    invert_(gram_II, lambda done: progress("inverting", done, num_items))
    diagonal_I = gram_II.diagonal()
    rows_at_once = LIMITS[gram_II.device.type].inverse_rows
    for start in range(0, num_items, rows_at_once):
        # Rows of B': P is symmetric.
        rows = slice(start, start + rows_at_once)
        if targets_II is None:
            row_cI = gram_II[rows] / -diagonal_I[rows, None]
        else:
            row_cI = targets_II[rows] @ gram_II
            share_c = row_cI[:, rows].diagonal() / diagonal_I[rows]
            row_cI -= share_c[:, None] * gram_II[rows]
        weight_II[:, rows] = row_cI.T.to(weight_II.dtype)
    weight_II.fill_diagonal_(0.0)


def solve_neighbors(
    entries: Entries,
    features: Entries,
    found: Neighbors,
    penalty_I: Numbers,
    progress: FitProgress,
) -> None:
    """Solve ``(G_CC + R_CC) b = A_Cj`` for the neighbours C of each item j.

    ``found`` has A_Cj of the histories, and gets b. Raises `torch.linalg.LinAlgError` if
    there is none.
    """
    from foretaste.models.linear.kernels import add_features, fill_systems

    other_IK, value_IK, popular = found
    num_items = len(other_IK)

    def solve_chunk(item_c: NDArray[np.int64]) -> int:
        width = int(size_I[item_c[0]])
        other_cw = other_IK[item_c, :width]
        # Sort by rank; missing neighbours come last.
        rank_cw = np.where(other_cw >= 0, popular.rank_I[other_cw], num_items)
        order_cw = np.argsort(rank_cw, axis=1, kind="stable")
        other_cw = np.take_along_axis(other_cw, order_cw, 1)
        value_cw = np.take_along_axis(value_IK[item_c, :width], order_cw, 1).astype(np.float64)
        system_cww = np.zeros((len(item_c), width, width))
        fill_systems(entries, popular, other_cw, system_cww)
        add_features(features, item_c, other_cw, system_cww, value_cw)
        # A missing neighbour has the equation b = 0.
        place_w = np.arange(width)
        system_cww[:, place_w, place_w] += np.where(other_cw >= 0, penalty_I[other_cw], 1.0)
        weight_cw, failure_c = solve_systems(
            torch.from_numpy(system_cww), torch.from_numpy(value_cw)
        )
        if failure_c.any() or not weight_cw.isfinite().all():
            raise torch.linalg.LinAlgError  # type: ignore[attr-defined]
        other_IK[item_c, :width], value_IK[item_c, :width] = other_cw, weight_cw.numpy()
        return len(item_c)

    size_I, num_done = (other_IK >= 0).sum(1), int((other_IK[:, 0] < 0).sum())
    for num_solved in parallel_map(solve_chunk, list(_chunks(size_I)), CPU):
        num_done += num_solved
        progress("solving for weights", num_done, len(size_I))


def _chunks(size_I: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield items of about the same number of neighbours, the most first; not those without any."""
    item_I = np.argsort(-size_I, kind="stable")[: int((size_I > 0).sum())]
    start = 0
    while start < len(item_I):
        stop = start + max(1, LIMITS["cpu"].neighbor_numbers // int(size_I[item_I[start]]) ** 2)
        yield item_I[start:stop]
        start = stop
