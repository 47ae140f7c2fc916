"""Settings of the closed-form baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from foretaste._util.settings import Range, check_settings


@dataclass(frozen=True, kw_only=True)
class PopularityConfig:
    """Popularity has nothing to set."""


@dataclass(frozen=True, kw_only=True)
class EaseConfig:
    """EASE has one setting."""

    l2: Annotated[float, Range(above=0)] = 500.0
    """Weight of the squared weights against the squared error, in interactions: the higher, the
    more two items must share users to count. The paper's best lie between 200 and 1,000."""

    def __post_init__(self) -> None:
        check_settings(self)
