"""iALS: implicit alternating least squares (Hu, Koren & Volinsky 2008, with Rendle et al. 2022's
regularization, arXiv 2110.14037).

Shape suffixes: B users, K candidates per user, U users, I items, D width, R rows of either side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foretaste.models.base import SweepModel, UserState
from foretaste.models.baselines.config import IALSConfig
from foretaste.models.baselines.ials_scorer import FoldInScorer, VectorScorer
from foretaste.models.batches import WholeData
from foretaste.models.config import TrainingSize
from foretaste.models.parts import WHOLE, Parts
from foretaste.models.scorer import Scorer
from foretaste.ops.conjugate_gradients import improve_rows
from foretaste.ops.dense import candidate_products, linear
from foretaste.ops.histories import HistoryTensors, offsets_of
from foretaste.ops.least_squares import FixedVectors, gramian, solve_rows
from foretaste.ops.random import Purpose, fill_normal_, stream_key

_START_STD = 0.1
"""Standard deviation of a vector's numbers at the start, times the root of the width."""

_AUTO_WEIGHT = 20.0
"""With ``auto`` all pairs together weigh 20 times all interactions; a pair weighs 1 at most."""

_AUTO_REGULARIZATION = 0.1
"""Factor of the 2-norm of the items' shares of all interactions. For N items of equal popularity
that norm is 1 / sqrt(N)."""


@dataclass(frozen=True, eq=False)
class BothSides(WholeData):
    """All interactions, by user and by item; of a part of the users, and one of the items."""

    of_items: HistoryTensors
    """The users who have each of the ``items``."""
    items: range
    num_interactions: int
    """Of all users."""
    parts: Parts
    """Those that users and items are in."""

    @property
    def num_samples(self) -> int:
        """Interactions."""
        return self.num_interactions

    samples_per_batch = num_samples


class IALS(SweepModel):
    """Scores a user and an item by the product of their vectors.

    With vectors w of users and h of items, the loss is::

        sum over interactions of c (w.h - 1)² + a * sum over all pairs of (w.h)²
            + regularization * (sum over users of n |w|² + sum over items of n |h|²)

    where c is 1 or an interaction's weight over the mean of all, a the weight of unobserved pairs,
    and n the sum of a row's c and a times its pairs. The confidence of Hu et al. is a + c, where
    they have 1 + alpha r.
    """

    name = "ials"
    config_class = IALSConfig
    user_rows = ("user_factors",)
    item_rows = ("item_factors",)

    def __init__(
        self, config: IALSConfig, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        self.user_factors = nn.Parameter(torch.empty(len(self.users), config.factors))
        self.item_factors = nn.Parameter(torch.empty(num_items, config.factors))
        self._frozen: tuple[FixedVectors, float, float] | None = None

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: Any) -> dict[str, Any]:
        settings = {"epochs": 20, "batch_size": size.num_users, "eval_every": 1, "patience": 3}
        # Settings of gradient steps, which a sweep has none of.
        return settings | {"learning_rate": 1.0, "beta1": 0.0, "beta2": 0.0}

    def make_batches(
        self, histories: HistoryTensors, *, parts: Parts = WHOLE, **settings: Any
    ) -> BothSides:
        whole, items = histories, parts.part_by_weight(self.item_count_I)
        if self.is_part:
            whole = _users_of_items(histories, items, parts)
        num_here = torch.tensor(histories.item_index.numel(), device=histories.device)
        num_interactions = int(parts.total(num_here))
        return BothSides(histories, whole.transposed(), items, num_interactions, parts)

    def training_bytes(self, device: torch.device) -> int:
        """Its weights and, of a half-sweep, one side's vectors and the other's solutions."""
        factors: int = self.config.factors
        return self.weight_bytes() + 4 * factors * (self.num_users + self.num_items)

    def reset_parameters(self, seed: int) -> None:
        """Vectors N(0, (0.1 / root of the width)²)."""
        self.forget()
        std = _START_STD * self.config.factors**-0.5
        for number, parameter in enumerate((self.user_factors, self.item_factors)):
            key, first = stream_key(seed, Purpose.INITIALISE, number), self.users.start
            fill_normal_(parameter, key, std, 0 if number else first)

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """The weights that may have been ``auto``; they stay as they are."""
        return {
            "unobserved_weight": self.unobserved_weight,
            "regularization": self.regularization,
        }

    @property
    def unobserved_weight(self) -> float:
        """The weight of unobserved pairs: as set or, for ``auto``, by the density."""
        if self.config.unobserved_weight != "auto":
            weight: float = self.config.unobserved_weight
            return weight
        density = self.item_count_I.double().sum().item() / (self.num_users * self.num_items)
        return min(max(_AUTO_WEIGHT * density, 1e-12), 1.0)

    @property
    def regularization(self) -> float:
        """The weight of squared vectors: as set or, for ``auto``, by popularity."""
        if self.config.regularization != "auto":
            weight: float = self.config.regularization
            return weight
        count_I = self.item_count_I.double()
        share: float = (count_I.norm() / count_I.sum().clamp(min=1.0)).item()
        return max(_AUTO_REGULARIZATION * share, 1e-12)

    @torch.no_grad()
    def sweep(self, batch: WholeData) -> Tensor:
        """Improve the users' vectors, then the items'; returns the mean loss of an interaction.

        A part has the vectors of its users and of all items. It improves those of its users, and
        those of consecutive items with about its share of all interactions. While it improves
        items, it has the vectors of all users.
        """
        assert isinstance(batch, BothSides)
        parts = batch.parts
        penalty = parts.each_or_none(lambda: self._improve_users(batch))
        # Summed in the order of the parts: to the same bits in each.
        gramian_DD = torch.cat(parts.gathered(gramian(self.user_factors)[None])).sum(0)
        pieces, dtype = parts.gathered_in_pieces(self.user_factors), self.user_factors.dtype
        users = FixedVectors.of_pieces(gramian_DD, pieces, self.num_users, dtype)
        items_ID, loss = parts.each_or_none(lambda: self._improve_items(users, batch))
        for place, piece_ID in parts.gathered_in_pieces(items_ID):
            self.item_factors[place] = piece_ID
        return ((loss + penalty) / batch.num_samples).float()

    def _improve_users(self, batch: BothSides) -> Tensor:
        """Improve the users' vectors for the items' as they stand; returns what the squares of the
        users' vectors add to the loss."""
        weight = self.unobserved_weight
        ridge_U = self._ridges(batch.histories, weight, self.regularization)
        fixed = FixedVectors.of(self.item_factors)
        users_UD, _ = improve_rows(
            fixed, batch.histories, weight, ridge_U, self.user_factors.detach()
        )
        self.user_factors.copy_(users_UD)
        penalty: Tensor = (
            ridge_U * torch.linalg.vector_norm(self.user_factors, dim=1).square()
        ).sum()
        return penalty

    def _improve_items(self, users: FixedVectors, batch: BothSides) -> tuple[Tensor, Tensor]:
        """Better vectors of the items of a batch for all ``users``, and their loss."""
        weight = self.unobserved_weight
        ridge_I = self._ridges(batch.of_items, weight, self.regularization)
        start_ID = self.item_factors.detach()[batch.items.start : batch.items.stop]
        return improve_rows(users, batch.of_items, weight, ridge_I, start_ID)

    def _ridges(self, histories: HistoryTensors, unobserved_weight: float, ridge: float) -> Tensor:
        """Weight of each row's squared vector, float64 [R]."""
        num_pairs = unobserved_weight * histories.num_items
        return ridge * (histories.total_weights() + num_pairs)

    @torch.no_grad()
    def scorer(self, *, known_users: bool) -> Scorer:
        if known_users:
            return VectorScorer(self.user_factors.detach(), self.item_factors.detach())
        return FoldInScorer(*self._for_new_users())

    def item_vectors(self) -> Tensor:
        return self.item_factors.detach()

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor]:
        return (self.rows_of_users(self.user_factors.detach(), user_index_B),)

    @torch.no_grad()
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        # A new user's system is solved exactly: no sweep follows that would make up for less.
        items, weight, ridge = self._for_new_users()
        ridge_B = self._ridges(histories, weight, ridge)
        return (solve_rows(items, histories, weight, ridge_B),)

    def _for_new_users(self) -> tuple[FixedVectors, float, float]:
        """The items as they stand, `unobserved_weight` and `regularization`.

        Kept until the mode is set or weights are loaded.
        """
        frozen = self._frozen
        if frozen is None or self.training or frozen[0].vector_ND.device != self.device:
            items = FixedVectors.of(self.item_factors)
            frozen = self._frozen = items, self.unobserved_weight, self.regularization
        return frozen

    def _score_catalogue(self, state: UserState) -> Tensor:
        (vector_BD,) = state.parts
        assert isinstance(vector_BD, Tensor)
        return linear(vector_BD, self.item_factors)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        (vector_BD,) = state.parts
        assert isinstance(vector_BD, Tensor)
        return candidate_products(vector_BD, self.item_factors, item_index_BK)

    def forget(self) -> None:
        self._frozen = None


def _users_of_items(histories: HistoryTensors, items: range, parts: Parts) -> HistoryTensors:
    """The users of all parts with some items alone, which are numbered from the first of them."""
    num_here = torch.tensor(len(histories), device=histories.device)
    row_N = histories.row_index() + parts.before(num_here)
    columns = [row_N.int(), histories.item_index]
    if histories.weight is not None:
        # One int32 tensor goes over the wire for rows, items and weights.
        columns.append(histories.weight.view(torch.int32))  # the same bits
    found = []
    for _, piece_N3 in parts.gathered_in_pieces(torch.stack(columns, 1)):
        item_N = piece_N3[:, 1]
        found.append(piece_N3[(item_N >= items.start) & (item_N < items.stop)])
    row_N, item_N, *bits = torch.cat(found).T
    row_N, order_N = torch.sort(row_N, stable=True)
    item_index = item_N[order_N] - items.start
    weight = bits[0][order_N].view(torch.float32) if bits else None
    offsets = offsets_of(row_N, int(parts.total(num_here)))
    return HistoryTensors(offsets, item_index, len(items), weight)
