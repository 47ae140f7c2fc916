"""Settings of iALS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range
from foretaste.models.config import Auto, Between, Candidates, FeatureConfig

_Weight = Annotated[float, Range(above=0, at_most=1e30)]


@dataclass(frozen=True, kw_only=True)
class IALSConfig(FeatureConfig):
    """iALS: a matrix factorisation by alternating least squares over all pairs.

    Hu et al. 2008; with the regularization of Rendle et al. 2022, arXiv 2110.14037. Hard to beat on
    data of any size, and fast: an epoch improves all users, then all items.
    """

    has_large_products = False
    has_steps = False
    architecture = ("factors",)
    has_candidates = True
    counted_in_users = ("feature_weight",)
    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "unobserved_weight": Between(0.003, 1.0, log=True),
        "regularization": Between(0.0003, 0.1, log=True),
    }

    # Equal weights are a tenth as strong in ease: new items are listed with high weights only.
    feature_candidates = {  # noqa: RUF012 (a ClassVar of the parent)
        "feature_power": (0.5,),
        "feature_weight": (100.0, 30.0, 300.0, 1000.0),
    }

    factors: Count = 128
    """Width of the user and item vectors."""

    unobserved_weight: _Weight | Literal["auto"] = "auto"
    """Weight of the squared score of every pair of user and item; an interaction's error has
    weight 1. auto follows the density of the interactions. (`alpha` of other programs is about its
    inverse.)"""

    regularization: _Weight | Literal["auto"] = "auto"
    """Weight of the squared vectors. Each is multiplied by its row's interactions plus
    unobserved_weight times all pairs of the row. auto follows the items' popularity: higher if
    few items have most of it."""

    feature_weight: Annotated[float, Range(at_least=0)] | Auto = "auto"
    """Weight of a feature value, as of a user who has all of its items: the higher, the more items
    of one category or brand stand together. 0 learns from no features. The rule of auto: 100."""

    feature_power: Annotated[float, Range(at_least=0, at_most=1)] | Auto = "auto"
    """A feature value of n items counts n to the power of minus this: the higher, the less the
    large categories say. The rule of auto: 0.5."""

    ignore_weights: bool = False
    """Learn from every interaction alike, without its weight."""

    def candidates(self) -> Candidates:
        # The steps of Rendle et al. 2022: 1, 0.3, 0.1, 0.03 and so on.
        return [("unobserved_weight", 3.0), ("regularization", 3.0)]
