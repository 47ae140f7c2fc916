"""Paired differences between two evaluations of the same users, with 95 % intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretaste.errors import SettingError
from foretaste.evaluation.config import parse_metric
from foretaste.evaluation.result import Evaluation, mean_interval

_OF_ONE_MODEL = frozenset({"diversity"})
"""Metrics that each model measures by a scale of its own: two of them have no difference."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Difference of two evaluations, second less first, with its 95 % interval over users."""

    name: str
    value: float
    low: float | None
    high: float | None

    @property
    def is_clear(self) -> bool:
        """True where the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def text(self) -> str:
        """The value as text, with a star where the interval leaves out zero."""
        return f"{self.value:+.4f}{' *' if self.is_clear else ''}"

    def interval(self) -> str:
        """The interval as text, empty where there is none."""
        return "" if self.low is None else f"{self.low:+.4f} to {self.high:+.4f}"


def paired_difference(
    name: str, first: NDArray[np.float64], second: NDArray[np.float64]
) -> Difference:
    """Mean of ``second - first`` of the same users in the same order, ± 1.96 standard errors.

    Paired, because users differ far more among themselves than models do on one user: two
    evaluations whose own intervals overlap may still differ clearly.
    """
    assert first.shape == second.shape, "a paired difference is of the same users"
    difference = second - first
    low, high = mean_interval(difference)
    return Difference(name=name, value=float(difference.mean()), low=low, high=high)


def compare_evaluations(first: Evaluation, second: Evaluation) -> dict[str, Difference]:
    """The difference in each metric both have per user, by name; coverage and diversity have none.

    Raises SettingError unless both are of the same dataset, part, protocol, candidates and users.
    """
    if first.dataset_digest != second.dataset_digest:
        raise SettingError(
            "evaluations on different datasets cannot be compared: their digests are "
            f"{first.dataset_digest[:12]!r} and {second.dataset_digest[:12]!r}; train and evaluate "
            "both runs on one dataset"
        )
    for name in ("split", "protocol", "candidates"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours != theirs:
            raise SettingError(
                f"evaluations of different {name} cannot be compared: {ours!r} and {theirs!r}"
            )
    if not np.array_equal(first.user_index, second.user_index):
        raise SettingError(
            f"evaluations of different users cannot be compared: {first.num_users:,} and "
            f"{second.num_users:,} of them; evaluate both runs on the same dataset"
        )
    return {
        name: paired_difference(name, values, second.per_user[name])
        for name, values in first.per_user.items()
        if name in second.per_user and parse_metric(name)[0] not in _OF_ONE_MODEL
    }
