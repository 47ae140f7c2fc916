"""iALS: implicit alternating least squares (Hu, Koren & Volinsky 2008, with Rendle et al. 2022's
regularization, arXiv 2110.14037).

Shape suffixes: B users, K candidates per user, U users, I items, D width, R rows of either side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from foretaste.models.base import SweepModel, UserState
from foretaste.models.batches import WholeData
from foretaste.models.config import Setting, TrainingSize
from foretaste.models.ials.config import IALSConfig
from foretaste.models.ials.scorer import FoldInScorer, VectorScorer
from foretaste.models.scorer import Scorer
from foretaste.ops.conjugate_gradients import improve_rows
from foretaste.ops.dense import candidate_products, linear
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.least_squares import FixedVectors, solve_rows
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
    """All interactions, by user and by item, and the features of items."""

    of_items: HistoryTensors
    """The users who have each item and, behind them, its feature values, with their weights."""

    features: HistoryTensors | None
    """The items of each feature value, if the model learns from features."""

    @property
    def num_samples(self) -> int:
        """Interactions."""
        return self.histories.item_index.numel()

    samples_per_batch = num_samples


class IALS(SweepModel):
    """Scores a user and an item by the product of their vectors.

    With vectors w of users and h of items, the loss is::

        sum over interactions of c (w.h - 1)² + a * sum over all pairs of (w.h)²
            + regularization * (sum over users of n |w|² + sum over items of n |h|²)

    where c is 1 or an interaction's weight over the mean of all, a the weight of unobserved pairs,
    and n the sum of a row's c and a times its pairs. The confidence of Hu et al., 1 + alpha r,
    is a + c here.

    A feature value of m items is one more user, who has all of its items with
    ``c = feature_weight * m ^ -feature_power``: a vector v adds ``c (v.h - 1)²`` for each of its
    items. It is no user among all pairs, in the popularity or in the rules of ``auto``. Its vector
    is the vector of a new user with these items. So it follows from the items, which are saved, and
    each sweep computes it again.
    """

    name = "ials"
    config_class = IALSConfig
    user_rows = ("user_factors",)
    item_rows = ("item_factors",)

    def __init__(self, config: IALSConfig, num_users: int, num_items: int) -> None:
        super().__init__(config.resolved(num_items), num_users, num_items)
        self.user_factors = nn.Parameter(torch.empty(num_users, config.factors))
        self.item_factors = nn.Parameter(torch.empty(num_items, config.factors))
        self._frozen: tuple[FixedVectors, float, float] | None = None
        self._features: HistoryTensors | None = None

    def take_features(self, features: HistoryTensors) -> None:
        """Take the items of each feature value, one row a value; called before `make_batches`."""
        self._features = features

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: IALSConfig) -> dict[str, Setting]:
        settings = {"epochs": 20, "batch_size": size.num_users, "eval_every": 1, "patience": 3}
        # These are settings of gradient steps; a sweep has none.
        return settings | {"learning_rate": 1.0, "beta1": 0.0, "beta2": 0.0}

    def make_batches(self, histories: HistoryTensors, **settings: object) -> BothSides:
        features = self._features
        if features is None:
            return BothSides(histories, histories.transposed(), None)
        size_V = features.lengths()
        weight_V = self.config.feature_weight * size_V.double() ** -self.config.feature_power
        weight_N = torch.repeat_interleave(weight_V.float(), size_V)
        everything = histories.followed_by(replace(features, weight=weight_N))
        return BothSides(histories, everything.transposed(), features)

    def training_bytes(self, device: torch.device) -> int:
        """Return its weights and, of a half-sweep, one side's vectors and the other's solutions."""
        factors: int = self.config.factors
        return self.weight_bytes() + 4 * factors * (self.num_users + self.num_items)

    def reset_parameters(self, seed: int) -> None:
        """Vectors N(0, (0.1 / root of the width)²)."""
        self.clear_cache()
        std = _START_STD * self.config.factors**-0.5
        for number, parameter in enumerate((self.user_factors, self.item_factors)):
            fill_normal_(parameter, stream_key(seed, Purpose.INITIALISE, number), std)

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """Return the weights that may have been ``auto``; they stay as they are."""
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
        """Improve the users' vectors, then the items'; returns the mean loss of an interaction."""
        assert isinstance(batch, BothSides)
        weight, ridge = self.unobserved_weight, self.regularization
        ridge_U = self._ridges(batch.histories, self.num_items, weight, ridge)
        ridge_I = self._ridges(batch.of_items, self.num_users, weight, ridge)
        items, start_UD = FixedVectors.of(self.item_factors), self.user_factors.detach()
        users_UD, _ = improve_rows(items, batch.histories, weight, ridge_U, start_UD)
        self.user_factors.copy_(users_UD)
        values_VD = None
        if (values := batch.features) is not None:
            ridge_V = self._ridges(values, self.num_items, weight, ridge)
            values_VD = solve_rows(items, values, weight, ridge_V)
        # Solve for items with the users that were just improved: the sides alternate.
        users, start_ID = FixedVectors.of(users_UD, values_VD), self.item_factors.detach()
        items_ID, loss = improve_rows(users, batch.of_items, weight, ridge_I, start_ID)
        self.item_factors.copy_(items_ID)
        # The loss of the items' systems has all terms but the users' squared vectors.
        penalty: Tensor = (ridge_U * torch.linalg.vector_norm(users_UD, dim=1).square()).sum()
        return ((loss + penalty) / batch.num_samples).float()

    def _ridges(
        self, histories: HistoryTensors, num_pairs: int, unobserved_weight: float, ridge: float
    ) -> Tensor:
        """Return the weight of each row's squared vector, float64 [R]; rows have ``num_pairs``."""
        # n of the docstring: a row's c and a times its pairs (Rendle et al. 2022, exponent 1).
        return ridge * (histories.total_weights() + unobserved_weight * num_pairs)

    @torch.no_grad()
    def scorer(self, *, known_users: bool) -> Scorer:
        if known_users:
            return VectorScorer(self.user_factors.detach(), self.item_factors.detach())
        return FoldInScorer(*self._for_new_users())

    def item_vectors(self) -> Tensor:
        return self.item_factors.detach()

    def index_vectors(self) -> Tensor:
        return self.item_vectors()

    def user_state(
        self,
        user_index_B: Tensor,
        histories: HistoryTensors,
        is_grown_B: Tensor | None = None,
    ) -> UserState:
        state = super().user_state(user_index_B, histories)
        if is_grown_B is not None:
            # Rows with later items are solved again, like the rows of new users.
            (vector_BD,) = state.parts
            assert isinstance(vector_BD, Tensor)
            row_G = is_grown_B.nonzero()[:, 0]
            (vector_BD[row_G],) = self._new_users(histories.rows(row_G))
        return state

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor]:
        return (self.user_factors.detach().index_select(0, user_index_B),)

    @torch.no_grad()
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        # A new user's system is solved exactly: no sweep follows that would make up for less.
        items, weight, ridge = self._for_new_users()
        ridge_B = self._ridges(histories, self.num_items, weight, ridge)
        return (solve_rows(items, histories, weight, ridge_B),)

    def _for_new_users(self) -> tuple[FixedVectors, float, float]:
        """Return the items as they stand, `unobserved_weight` and `regularization`.

        Kept until the mode is set or weights are loaded.
        """
        frozen = self._frozen
        if frozen is None or self.training or frozen[0].vector_ND.device != self.device:
            items = FixedVectors.of(self.item_factors)
            frozen = self._frozen = items, self.unobserved_weight, self.regularization
        return frozen

    def _score_catalogue(self, state: UserState) -> Tensor:
        return linear(self.user_vectors(state), self.item_factors)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return candidate_products(self.user_vectors(state), self.item_factors, item_index_BK)

    def clear_cache(self) -> None:
        self._frozen = None
