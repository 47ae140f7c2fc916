"""The verdict of a gate: is a model clearly worse than another one for the same users?

U users with a held-out item.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretaste._util.formatting import pluralize

FEWEST_USERS = 20
"""With fewer users the gate decides nothing."""

# Among 26 pairs of seeds on ml-1m, 95 % differ by at most 2.5 % in ndcg@100 (seven models under
# leave-one-out and held-out-users, benchmarks/results/quality.jsonl). Among 42 pairs on ml-100k,
# 95 % differ by at most 4.6 %: its few users add a spread of their own, which the interval has.
SEED_NOISE = 0.025
"""Loss, as a share of the first model's value, that a change of the seed alone can cause."""

_MOST_UNSEEN = 0.1
"""The gate is passed only if a loss of this share of the first model's value could be seen."""

# A loss of that many standard errors has a 95 % interval below zero in four cases of five.
_FOUR_OF_FIVE = 2.8

# Lists that are worse miss hits and have others, so their values vary more than if hits were lost
# at random. With the lists of popularity for a share of the users, the variance was 1.1 to 2.1
# times that one, as long as popularity had at most four fifths of the model's value (the worlds of
# benchmarks/nights.py).
_SPREAD = 2.0

# The quantile of 97.5 % of the normal distribution, and the terms of the expansion that turns it
# into the quantile of Student's t (Abramowitz and Stegun 26.7.5).
_Z = 1.959963984540054
_TERMS_OF_T = (
    (_Z**3 + _Z) / 4,
    (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96,
    (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384,
)

Outcome = Literal["worse", "passed", "not seen", "too few"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A comparison of two models by one metric, on the same users."""

    metric: str
    num_users: int
    first: float
    """Mean of the first model."""
    second: float
    """Mean of the second model."""
    low: float
    high: float
    """Bounds of the 95 % interval of the difference, second less first, by Student's t."""
    noise: float
    """Loss that a change of the seed alone can cause; 0 for models that are fitted in one pass."""
    loss_seen: float
    """The smallest loss, as a share of the first model's value, that is refused in four cases of
    five; infinite if the first model found nothing."""

    @property
    def outcome(self) -> Outcome:
        """``worse`` if the interval of the difference lies below the noise, ``not seen`` if a loss
        of a tenth would not have been refused in four cases of five."""
        if self.num_users < FEWEST_USERS:
            return "too few"
        if self.high < -self.noise:
            return "worse"
        return "passed" if self.loss_seen <= _MOST_UNSEEN else "not seen"

    def numbers(self) -> str:
        """Return the values of both models, and their difference with its interval."""
        return (
            f"{self.metric} {self.second:.4f} after {self.first:.4f}, "
            f"{self.second - self.first:+.4f} ({self.low:+.4f} to {self.high:+.4f}) on the same "
            f"{pluralize(self.num_users, 'user')}"
        )

    def seen(self) -> str:
        """Return the loss that could have been seen, in words."""
        if self.loss_seen > 1:
            return "no loss could have been seen"
        return f"a loss of {self.loss_seen:.0%} could have been seen"


def judge(
    metric: str,
    first_U: NDArray[np.float64],
    second_U: NDArray[np.float64],
    *,
    has_seed: bool = False,
) -> Verdict:
    """Return the verdict on the second model, from the metric of each user under both models.

    ``has_seed`` is true for models that are trained by steps: equal settings give other weights for
    another seed, and on data that differ by one row.
    """
    num_users, first = len(first_U), float(first_U.mean())
    difference_U = second_U - first_U
    value, noise = float(difference_U.mean()), SEED_NOISE * first * has_seed
    error = half_width = math.inf
    if num_users >= FEWEST_USERS:
        error = float(difference_U.std(ddof=1)) / math.sqrt(num_users)
        half_width = student_t(num_users - 1) * error
    return Verdict(
        metric=metric,
        num_users=num_users,
        first=first,
        second=float(second_U.mean()),
        low=value - half_width,
        high=value + half_width,
        noise=noise,
        loss_seen=_loss_seen(first_U, error, SEED_NOISE * has_seed),
    )


def student_t(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, within 0.00002 if ``freedom`` is 19 or more."""
    first, second, third = _TERMS_OF_T
    return _Z + (first + (second + third / freedom) / freedom) / freedom


def _loss_seen(first_U: NDArray[np.float64], error: float, noise: float) -> float:
    """Return the smallest share of the first model's mean whose loss exceeds ``noise`` by 2.8
    standard errors: ``error``, but at least the error of a model whose lists are worse for some
    users.

    A model that loses the share x of its hits v at random has the variance (x E[v²] - x² E[v]²) / n
    of its mean, and lists that are worse have twice that. Lists that are nearly equal have a small
    ``error``, and would claim to see everything.
    """
    mean, num_users = float(first_U.mean()), len(first_U)
    if not mean:
        return math.inf
    # (x - noise)² n E[v]² = 2.8² 2 (x E[v²] - x² E[v]²), the larger root of a x² - 2 b x + c = 0
    square, ratio = _SPREAD * _FOUR_OF_FIVE**2, float((first_U**2).mean()) / mean**2
    a = num_users + square
    b = noise * num_users + square * ratio / 2
    c = noise**2 * num_users
    at_random = (b + math.sqrt(max(0.0, b * b - a * c))) / a
    return max(at_random, noise + _FOUR_OF_FIVE * error / mean)
