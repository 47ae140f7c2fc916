"""iALS: implicit alternating least squares (Hu, Koren & Volinsky 2008, with Rendle et al. 2022's
regularization, arXiv 2110.14044).

Shape suffixes: B users, K candidates per user, U users, I items, D width, R rows of either side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foretaste.models.base import SweepModel, UserState
from foretaste.models.baselines.config import IALSConfig
from foretaste.models.batches import WholeData
from foretaste.models.config import SamplingConfig, TrainingSize
from foretaste.models.share import Share
from foretaste.ops.dense import candidate_products, linear
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.least_squares import FixedVectors, solve_rows
from foretaste.ops.random import Purpose, fill_normal_, stream_key

_START_STD = 0.1
"""Of a vector's numbers, times the root of the width."""

_AUTO_WEIGHT = 20.0
"""Weight of all pairs together against that of all interactions; a pair's is 1 at most."""


@dataclass(frozen=True, eq=False)
class BothSides(WholeData):
    """All interactions, by user and by item."""

    of_items: HistoryTensors
    """The users who have each item."""

    @property
    def num_samples(self) -> int:
        """Interactions."""
        return self.histories.item_index.numel()

    samples_per_batch = num_samples


class IALS(SweepModel):
    """Scores a user and an item by the product of their vectors.

    With vectors w of users and h of items, the loss is::

        sum over interactions of (w.h - 1)² + a * sum over all pairs of (w.h)²
            + regularization * (sum over users of n^nu |w|² + sum over items of n^nu |h|²)

    where a is the weight of unobserved pairs, and n a row's interactions and a times its pairs.
    """

    name = "ials"
    config_class = IALSConfig
    user_rows = ("user_factors",)
    item_rows = ("item_factors",)

    def __init__(
        self, config: IALSConfig, num_users: int, num_items: int, share: Share | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, share)
        self.user_factors = nn.Parameter(torch.empty(num_users, config.factors))
        self.item_factors = nn.Parameter(torch.empty(num_items, config.factors))
        self._frozen_items: FixedVectors | None = None

    @classmethod
    def auto_settings(cls, size: TrainingSize, sampling: SamplingConfig | None) -> dict[str, Any]:
        settings = {"epochs": 20, "batch_size": size.num_users, "eval_every": 1, "patience": 3}
        # Of steps, which a sweep has none of.
        return settings | {"learning_rate": 1.0, "beta1": 0.0, "beta2": 0.0}

    def make_batches(self, histories: HistoryTensors, **settings: Any) -> BothSides:
        return BothSides(histories, histories.transposed())

    def reset_parameters(self, seed: int) -> None:
        """Vectors N(0, (0.1 / root of the width)²)."""
        self._frozen_items = None
        std = _START_STD * self.config.factors**-0.5
        for number, parameter in enumerate((self.user_factors, self.item_factors)):
            fill_normal_(parameter, stream_key(seed, Purpose.INITIALISE, number), std)

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """``unobserved_weight``, which may have been ``auto``; it stays as it is."""
        return {"unobserved_weight": self.unobserved_weight}

    @property
    def unobserved_weight(self) -> float:
        """The weight of unobserved pairs: as set or, for ``auto``, by the density."""
        if self.config.unobserved_weight != "auto":
            weight: float = self.config.unobserved_weight
            return weight
        density = self.item_count_I.double().sum().item() / (self.num_users * self.num_items)
        return min(max(_AUTO_WEIGHT * density, 1e-12), 1.0)

    @torch.no_grad()
    def sweep(self, batch: WholeData) -> Tensor:
        """Solve for the users, then for the items; returns the loss for each interaction."""
        assert isinstance(batch, BothSides)
        ridge_U = self._ridges(batch.histories)
        users_UD, _ = self._solved(FixedVectors.of(self.item_factors), batch.histories, ridge_U)
        self.user_factors.copy_(users_UD)
        user_penalty = (ridge_U * users_UD.square().sum(1, dtype=torch.float64)).sum()
        ridge_I = self._ridges(batch.of_items)
        items_ID, loss_I = self._solved(FixedVectors.of(users_UD), batch.of_items, ridge_I)
        self.item_factors.copy_(items_ID)
        total = loss_I.sum(dtype=torch.float64) + user_penalty
        return (total / batch.num_samples).float()

    def _solved(
        self, fixed: FixedVectors, histories: HistoryTensors, ridge_R: Tensor
    ) -> tuple[Tensor, Tensor]:
        return solve_rows(fixed, histories, self.unobserved_weight, ridge_R)

    def _ridges(self, histories: HistoryTensors) -> Tensor:
        """Weight of each row's squared vector, float64 [R]."""
        num_pairs = self.unobserved_weight * histories.num_items
        count_R = histories.lengths().double() + num_pairs
        ridge_R: Tensor = self.config.regularization * count_R**self.config.nu
        return ridge_R

    def item_vectors(self) -> Tensor:
        return self.item_factors.detach()

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor]:
        return (self.user_factors.detach().index_select(0, user_index_B),)

    @torch.no_grad()
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        return (self._solved(self._fixed_items(), histories, self._ridges(histories))[0],)

    def _fixed_items(self) -> FixedVectors:
        """The items as they stand; kept until the mode is set or weights are loaded."""
        fixed = self._frozen_items
        if fixed is None or self.training or fixed.vector_ND.device != self.device:
            fixed = self._frozen_items = FixedVectors.of(self.item_factors)
        return fixed

    def _score_catalogue(self, state: UserState) -> Tensor:
        (vector_BD,) = state.parts
        assert isinstance(vector_BD, Tensor)
        return linear(vector_BD, self.item_factors)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        (vector_BD,) = state.parts
        assert isinstance(vector_BD, Tensor)
        return candidate_products(vector_BD, self.item_factors, item_index_BK)

    def forget(self) -> None:
        self._frozen_items = None
