"""95 % intervals over users."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.96

Interval = tuple[float, float] | tuple[None, None]


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Mean ± 1.96 standard errors of values of independent users; (None, None) below two."""
    if len(values) < 2:
        return None, None
    mean = float(values.mean())
    half_width = Z_95 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean - half_width, mean + half_width


def wilson_interval(share: float, num_users: int) -> Interval:
    """Wilson's score interval (1927) of a share of users; stays within [0, 1]."""
    z_squared = Z_95 * Z_95
    centre = share + z_squared / (2 * num_users)
    spread = share * (1 - share) / num_users + z_squared / (4 * num_users * num_users)
    half_width = Z_95 * math.sqrt(max(0.0, spread))
    scale = 1 + z_squared / num_users
    return max(0.0, (centre - half_width) / scale), min(1.0, (centre + half_width) / scale)
