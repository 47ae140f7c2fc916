"""Settings of popularity: there are none."""

from __future__ import annotations

from dataclasses import dataclass

from foretaste.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class PopularityConfig(ModelConfig):
    """Popularity: items that most users have, for everyone. Other models must beat it.

    Where interactions have weights, items with the largest sum of them: with a half-life those
    popular now.
    """

    has_epochs = False
    has_large_products = False

    takes_weights = True
