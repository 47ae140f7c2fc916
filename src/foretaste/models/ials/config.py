"""Settings of iALS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range
from foretaste.models.config import Between, Candidates, ModelConfig

_Weight = Annotated[float, Range(above=0, at_most=1e30)]


@dataclass(frozen=True, kw_only=True)
class IALSConfig(ModelConfig):
    """iALS: a matrix factorisation by alternating least squares over all pairs.

    Hu et al. 2008; with the regularization of Rendle et al. 2022, arXiv 2110.14037. Hard to beat on
    data of any size, and fast: an epoch improves all users, then all items.
    """

    has_large_products = False
    has_steps = False
    architecture = ("factors",)
    has_candidates = True
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
    """Weight of the squared vectors. Each is multiplied by its row's interactions plus
    unobserved_weight times all pairs of the row. auto goes by the items' popularity: higher where
    few items have most of it."""

    ignore_weights: bool = False
    """Learn from every interaction alike, whatever its weight."""

    def candidates(self) -> Candidates:
        # Steps as Rendle et al. 2022 take them: 1, 0.3, 0.1, 0.03 and so on.
        return [("unobserved_weight", 3.0), ("regularization", 3.0)]
