"""Settings of generated interactions."""

from dataclasses import dataclass
from typing import Annotated

from foretaste._util.settings import Count, Range, Seed, check_settings, setting_error


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Shape of generated interactions; the defaults are the demonstration's."""

    num_users: Count = 2_000
    """Number of users; every user has interactions."""

    num_items: Count = 1_000
    """Number of items; the least popular items may have no user."""

    num_interactions: Count = 60_000
    """Exact number of distinct (user, item) pairs; at most half of all possible pairs."""

    num_genres: Count = 12
    """Number of genres of the items; each user prefers a few of them."""

    taste: Annotated[float, Range(at_least=0, at_most=10)] = 2.0
    """Weight of tastes beside popularity; users choose by popularity alone if it is 0."""

    seed: Seed = 0
    """Seed of all random draws."""

    def __post_init__(self) -> None:
        check_settings(self)
        most = self.num_users * max(self.num_items // 2, 1)
        if not self.num_users <= self.num_interactions <= most:
            raise setting_error(
                "num_interactions",
                self.num_interactions,
                f"from {self.num_users:,} (one for each user) to {most:,} (half of the items for "
                "each)",
            )
