"""Settings of the baselines: popularity, and the models fitted by linear algebra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from foretaste._util.settings import Count, Range
from foretaste.models.config import Between, Dropout, ModelConfig

_Weight = Annotated[float, Range(above=0, at_most=1e30)]
_UserPower = Annotated[float, Range(at_least=0, at_most=1)]


@dataclass(frozen=True, kw_only=True)
class PopularityConfig(ModelConfig):
    """Popularity: items that most users have, for everyone. Other models must beat it."""

    has_epochs = False
    has_large_products = False


@dataclass(frozen=True, kw_only=True)
class EaseConfig(ModelConfig):
    """EASE: linear item-to-item weights in closed form, learned with dropout.

    Steck 2019, arXiv 1905.03375, and Steck 2020 (EDLAE). A strong baseline; --neighbors is for
    more items than a weight for every pair of them fits.
    """

    has_epochs = False
    has_large_products = False
    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "l2": Between(10.0, 5000.0, log=True),
        "dropout": Between(0.0, 0.8),
        "user_power": Between(0.0, 0.6),
    }

    l2: Annotated[float | None, Range(above=0)] = None
    """Weight of the squared weights against the squared error, in interactions: the higher, the
    more users two items must share. 200 unless given, and 20 with neighbors."""

    dropout: Dropout = 0.5
    """Share of each history that is dropped in learning, on average over all ways to drop it: the
    higher, the less the weights of frequent items are trusted. 0 is EASE as first published."""

    user_power: _UserPower | None = None
    """A user of n items counts n to the power of minus this: the higher, the less people with many
    items say. 0 unless given, everyone alike, and 0.3 with neighbors."""

    neighbors: Count | None = None
    """Neighbours of each item that may have a weight towards it, such as 100; all items unless
    given."""

    ignore_weights: bool = False
    """Learn from every interaction alike, whatever its weight."""

    @property
    def resolved_l2(self) -> float:
        """``l2``, or what stands in its place: fewer weights overfit less."""
        if self.l2 is not None:
            return self.l2
        return 200.0 if self.neighbors is None else 20.0

    @property
    def resolved_user_power(self) -> float:
        """``user_power``, or what stands in its place."""
        if self.user_power is not None:
            return self.user_power
        # Of all pairs 0.3 gained on one of four sets and nearly lost on another; of a few
        # neighbours it gained on two of five and lost on none: docs/models.md.
        return 0.0 if self.neighbors is None else 0.3

    @property
    def resolved_settings(self) -> dict[str, Any]:
        return {"l2": self.resolved_l2, "user_power": self.resolved_user_power}


@dataclass(frozen=True, kw_only=True)
class NeighborsConfig(ModelConfig):
    """Settings of the models that keep a few neighbours of each item."""

    has_epochs = False
    has_large_products = False

    neighbors: Count = 100
    """Neighbours kept of each item. Memory grows with them, 8 bytes for each of each item."""


@dataclass(frozen=True, kw_only=True)
class ItemKNNConfig(NeighborsConfig):
    """Item-kNN: items whose users are most alike, by shrunk cosine.

    Sarwar et al. 2001. It keeps a few neighbours of each item, for catalogues of any size.
    """

    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "neighbors": Between(20, 1000, log=True),
        "shrinkage": Between(0.0, 200.0),
        "user_power": Between(0.0, 0.6),
    }

    shrinkage: Annotated[float, Range(at_least=0)] = 10.0
    """Users added to the cosine's denominator: the higher, the less items of few users count."""

    user_power: _UserPower = 0.5
    """A user of n items counts n to the power of minus this: the higher, the less people with many
    items say. 0 counts everyone alike."""

    ignore_weights: bool = False
    """Learn from every interaction alike, whatever its weight."""


@dataclass(frozen=True, kw_only=True)
class RP3betaConfig(NeighborsConfig):
    """RP3beta: random walks from item to user to item, popular items held back.

    Paudel et al. 2017. It keeps a few neighbours of each item, for catalogues of any size.
    """

    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "neighbors": Between(20, 1000, log=True),
        "cut": ("target", "source"),
        "alpha": Between(0.2, 1.5),
        "beta": Between(0.0, 1.0),
    }

    cut: Literal["target", "source"] = "target"
    """Whose strongest neighbours are kept: of each item that is recommended (target), or of each
    item of a history (source), which suits sparse data and short histories."""

    alpha: Annotated[float, Range(at_least=0, at_most=2)] = 0.6
    """Power of the probability of each step: the higher, the less people and items with many
    interactions count."""

    beta: Annotated[float, Range(at_least=0, at_most=1)] = 0.4
    """Power of the number of users by which an item's weight is divided: the higher, the less
    popular items are shown."""

    ignore_weights: bool = False
    """Learn from every interaction alike, whatever its weight."""


@dataclass(frozen=True, kw_only=True)
class IALSConfig(ModelConfig):
    """iALS: a matrix factorisation by alternating least squares over all pairs.

    Hu et al. 2008; with the regularization of Rendle et al. 2022, arXiv 2110.14037. Hard to beat on
    data of any size, and fast: an epoch solves for all users, then for all items.
    """

    has_large_products = False
    has_steps = False
    parallel = "users"
    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "unobserved_weight": Between(0.003, 1.0, log=True),
        "regularization": Between(0.0003, 0.1, log=True),
    }

    factors: Count = 128
    """Width of the user and item vectors."""

    unobserved_weight: _Weight | Literal["auto"] = "auto"
    """Weight of the squared score of every pair of user and item, where an interaction's error has
    weight 1. auto goes by the density of the interactions. (`alpha` of other programs is about its
    inverse.)"""

    regularization: _Weight | Literal["auto"] = "auto"
    """Weight of the squared vectors, each times its row's interactions, and unobserved pairs by
    their weight. auto goes by the items' popularity: higher where few items have most of it."""

    ignore_weights: bool = False
    """Learn from every interaction alike, whatever its weight."""
