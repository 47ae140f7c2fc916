"""Settings of the linear models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from foretaste._util.settings import Count, Range
from foretaste.models.config import (
    Auto,
    Between,
    Candidates,
    Dropout,
    FeatureConfig,
    ModelConfig,
    Setting,
)

_MOST_OF_ALL_PAIRS = 6_000
"""Items up to which EASE has a weight for every pair of them unless told otherwise."""

_SHORT_HISTORIES = 60.0
"""Items per user below which a random walk keeps each item's strongest targets."""

_UserPower = Annotated[float, Range(at_least=0, at_most=1)]


@dataclass(frozen=True, kw_only=True)
class _LinearConfig(ModelConfig):
    """A model of weights between items. A rule or the validation part chooses each ``auto``."""

    has_epochs = False
    has_large_products = False
    has_candidates = True

    def rule(self, num_items: int, items_per_user: float) -> dict[str, Setting]:
        """Return the values in the place of ``auto``."""
        raise NotImplementedError

    def resolved(self, num_items: int, items_per_user: float = 0.0) -> Self:
        return self._by_rule(self.rule(num_items, items_per_user))


@dataclass(frozen=True, kw_only=True)
class RidgeConfig(FeatureConfig, _LinearConfig):
    """A ridge regression of every item on the others."""

    counted_in_users = ("l2", "feature_weight")
    feature_candidates = {  # noqa: RUF012 (a ClassVar of the parent)
        "feature_power": (0.5, 0.0),
        "feature_weight": (30.0, 100.0, 10.0, 3.0),
    }

    neighbors: Count | Literal["all"] | Auto = "auto"
    """Neighbours of each item that may have a weight towards it, such as 100, or all items. The
    rule of auto: all of up to 6,000 items, else 100."""

    feature_weight: Annotated[float, Range(at_least=0)] | Auto = "auto"
    """Weight of a feature value, as of a user who has all of its items: the higher, the more items
    of one category or brand stand together. 0 learns from no features. The rule of auto: 30."""

    feature_power: Annotated[float, Range(at_least=0, at_most=1)] | Auto = "auto"
    """A feature value of n items counts n to the power of minus this: the higher, the less the
    large categories say. The rule of auto: 0.5."""

    new_item_factor: Annotated[float, Range(at_least=1)] = 1.0
    """Factor of the scores of items that nobody has: the higher, the more lists have one."""

    def resolved(self, num_items: int, items_per_user: float = 0.0) -> Self:
        neighbors = self.neighbors
        if neighbors == "auto":
            neighbors = "all" if num_items <= _MOST_OF_ALL_PAIRS else 100
        elif neighbors != "all" and neighbors >= num_items - 1:
            neighbors = "all"
        # The rule of the other settings depends on it.
        return super(RidgeConfig, replace(self, neighbors=neighbors)).resolved(
            num_items, items_per_user
        )


@dataclass(frozen=True, kw_only=True)
class EaseConfig(RidgeConfig):
    """EASE: linear item-to-item weights in closed form, learned with dropout.

    Steck 2019, arXiv 1905.03375, and Steck 2020 (EDLAE). A strong baseline. --neighbors is for
    catalogues so large that a weight for every pair of items does not fit.
    """

    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "l2": Between(10.0, 5000.0, log=True),
        "dropout": Between(0.0, 0.8),
        "user_power": Between(0.0, 0.6),
    }

    l2: Annotated[float, Range(above=0)] | Auto = "auto"
    """Weight of the squared weights against the squared error, in interactions: the higher, the
    more users two items must share. The rule of auto: 200 with all neighbours, 20 with a few."""

    dropout: Dropout | Auto = "auto"
    """Share of each history that is dropped in learning, on average over all ways to drop it: the
    higher, the less the weights of frequent items are trusted. 0 is EASE as first published. The
    rule of auto: 0.5."""

    user_power: _UserPower | Auto = "auto"
    """A user of n items counts n to the power of minus this: the higher, the less people with many
    items say. The rule of auto: 0 (everyone alike) with all neighbours, 0.3 with a few."""

    ignore_weights: bool = False
    """Learn from every interaction alike, without its weight."""

    def rule(self, num_items: int, items_per_user: float) -> dict[str, Setting]:
        # Fewer weights overfit less. With all pairs a user_power of 0.3 gained on one of four sets
        # and nearly lost on another; with a few neighbours it gained on two of five and lost on
        # none.
        l2, user_power = (200.0, 0.0) if self.neighbors == "all" else (20.0, 0.3)
        return {"l2": l2, "dropout": 0.5, "user_power": user_power}

    def candidates(self) -> Candidates:
        forms: Candidates = [("neighbors", ("all", 100))] if self.neighbors == "all" else []
        return [
            *forms,
            ("l2", 3.0),
            ("user_power", (0.0, 0.3, 0.5)),
            ("dropout", (0.35, 0.5, 0.65)),
            # 400 neighbours take six times as long, so the others are chosen before.
            ("neighbors", (100, 400)),
        ]


@dataclass(frozen=True, kw_only=True)
class SlistConfig(RidgeConfig):
    """SLIST: what comes next, by linear weights from the last items in closed form.

    Choi et al. 2021, arXiv 2103.16104. It needs the order of interactions. EASE is the case without
    an order.
    """

    uses_order = True
    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "recency": Between(0.2, 1.5),
        "set_weight": Between(0.03, 3.0, log=True),
        "l2": Between(10.0, 3000.0, log=True),
    }

    recency: Annotated[float, Range(at_least=0, at_most=10)] | Auto = "auto"
    """An item d places back counts 1 + d to the power of minus this: the higher, the more the
    newest items say. The rule of auto: 0.7."""

    window: Annotated[int, Range(at_least=1, at_most=1000)] = 60
    """Last items of a history that say what comes next."""

    set_weight: Annotated[float, Range(at_least=0)] | Auto = "auto"
    """Weight of the error that EASE minimises, which knows no order, against the error of the next
    item. The rule of auto: 0.3."""

    l2: Annotated[float, Range(above=0)] | Auto = "auto"
    """Weight of the squared weights against the squared errors: the higher, the more often two
    items must follow each other. The rule of auto: 100."""

    def rule(self, num_items: int, items_per_user: float) -> dict[str, Setting]:
        return {"recency": 0.7, "set_weight": 0.3, "l2": 100.0}

    def candidates(self) -> Candidates:
        return [
            ("l2", 3.0),
            ("set_weight", (0.1, 0.3, 1.0)),
            ("recency", (0.3, 0.5, 0.7, 1.0)),
        ]


@dataclass(frozen=True, kw_only=True)
class NeighborsConfig(_LinearConfig):
    """Settings of the models that keep a few neighbours of each item."""

    neighbors: Count | Auto = "auto"
    """Neighbours kept of each item. Memory grows with them, 8 bytes for each of each item. The
    rule of auto: 100."""


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

    # Not counted_in_users: samples of a tenth and a thirtieth of lastfm, steam and MovieLens small
    # do best with 3 to 10 or more, and so do all of the data. If scaled, samples chose ten times
    # too much.
    shrinkage: Annotated[float, Range(at_least=0)] | Auto = "auto"
    """Users added to the cosine's denominator: the higher, the less items of few users count. The
    rule of auto: 10."""

    user_power: _UserPower | Auto = "auto"
    """A user of n items counts n to the power of minus this: the higher, the less people with many
    items say. 0 counts everyone alike. The rule of auto: 0.5."""

    ignore_weights: bool = False
    """Learn from every interaction alike, without its weight."""

    def rule(self, num_items: int, items_per_user: float) -> dict[str, Setting]:
        return {"neighbors": 100, "shrinkage": 10.0, "user_power": 0.5}

    def candidates(self) -> Candidates:
        return [
            ("user_power", (0.0, 0.3, 0.5, 0.7)),
            ("shrinkage", (0.0, 3.0, 10.0, 30.0, 100.0)),
            ("neighbors", (100, 400)),
        ]


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

    cut: Literal["target", "source", Auto] = "auto"
    """Whose strongest neighbours are kept: of each item that is recommended (target), or of each
    item of a history (source), which suits sparse data and short histories. The rule of auto:
    source where users have fewer than 60 items on average, else target."""

    alpha: Annotated[float, Range(at_least=0, at_most=2)] | Auto = "auto"
    """Power of the probability of each step: the higher, the less people and items with many
    interactions count. The rule of auto: 0.6."""

    beta: Annotated[float, Range(at_least=0, at_most=1)] | Auto = "auto"
    """Power of the number of users by which an item's weight is divided: the higher, the less
    popular items are shown. The rule of auto: 0.4."""

    ignore_weights: bool = False
    """Learn from every interaction alike, without its weight."""

    def rule(self, num_items: int, items_per_user: float) -> dict[str, Setting]:
        cut = self.cut
        if cut == "auto":
            cut = "source" if items_per_user < _SHORT_HISTORIES else "target"
        # On lastfm, with alpha 1 and beta 0.2, target had an NDCG@100 of 0.082 where source had
        # 0.347; with these values it has 0.314.
        return {"neighbors": 100, "cut": cut, "alpha": 0.6, "beta": 0.4}

    def candidates(self) -> Candidates:
        return [
            ("cut", ("source", "target")),
            ("beta", (0.0, 0.2, 0.4, 0.6)),
            ("alpha", (0.4, 0.6, 0.8, 1.0)),
            ("neighbors", (100, 400)),
        ]
