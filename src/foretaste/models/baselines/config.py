"""Settings of the closed-form baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from foretaste._util.settings import Range
from foretaste.models.config import Between, ModelConfig


@dataclass(frozen=True, kw_only=True)
class PopularityConfig(ModelConfig):
    """Popularity: items that most users have, for everyone. Other models must beat it."""

    has_epochs = False
    has_large_products = False


@dataclass(frozen=True, kw_only=True)
class EaseConfig(ModelConfig):
    """EASE: linear item-to-item weights in closed form.

    Steck 2019, arXiv 1905.03375. A strong baseline where the items are few enough: it keeps a
    weight for every pair of them.
    """

    has_epochs = False
    has_large_products = False
    search_space = {"l2": Between(10.0, 5000.0, log=True)}  # noqa: RUF012 (a ClassVar of the parent)

    l2: Annotated[float, Range(above=0)] = 500.0
    """Weight of the squared weights against the squared error, in interactions: the higher, the
    more two items must share users to count. The paper's best lie between 200 and 1,000."""
