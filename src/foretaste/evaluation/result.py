"""Results of evaluations: metrics with 95 % intervals, conditions, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from foretaste._util.documents import Document
from foretaste._util.formatting import compact, html_table, pluralize
from foretaste.errors import SettingError
from foretaste.evaluation.config import (
    GROUPS,
    INTERVALS,
    LIST_METRICS,
    METRICS,
    TIES,
    describe_candidates,
    parse_metric,
)

Interval = tuple[float, float] | tuple[None, None]

# 95 % of a normal distribution lies within this many deviations of its mean.
_Z_95 = 1.96

_MOST_UNKNOWN = 0.1
"""If a larger share of users is answered by popularity, the numbers say little about the model."""


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Return the mean ± 1.96 standard errors of independent values; (None, None) below two."""
    if len(values) < 2:
        return None, None
    mean = float(values.mean())
    half_width = _Z_95 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean - half_width, mean + half_width


def wilson_interval(share: float, num_users: int) -> Interval:
    """Wilson's score interval (1927) of a share of users; stays within [0, 1]."""
    # (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)
    z_squared = _Z_95 * _Z_95
    centre = share + z_squared / (2 * num_users)
    spread = share * (1 - share) / num_users + z_squared / (4 * num_users * num_users)
    half_width = _Z_95 * math.sqrt(max(0.0, spread))
    scale = 1 + z_squared / num_users
    return max(0.0, (centre - half_width) / scale), min(1.0, (centre + half_width) / scale)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number, with its 95 % interval over users if one is defined."""

    name: str
    value: float
    low: float | None
    high: float | None

    def text(self) -> str:
        """Return the value as text."""
        return f"{self.value:.4f}"

    def interval(self) -> str:
        """Return the interval as text, empty if there is none."""
        if self.low is None or self.high is None:
            return ""
        if parse_metric(self.name)[0] in LIST_METRICS:
            return f"{self.low:.4f}–{self.high:.4f}"
        # Few users widen the normal interval beyond 0..1, which bound the mean of a share.
        return f"{max(0.0, self.low):.4f}–{min(1.0, self.high):.4f}"

    def __str__(self) -> str:
        interval = self.interval()
        return f"{self.name} {self.text()}" + (f" ({interval})" if interval else "")


def mean_metrics(
    per_user: Mapping[str, NDArray[np.float64]], num_targets: NDArray[np.int64]
) -> dict[str, Metric]:
    """Return means over users with their intervals; Wilson's for HR where each has one target."""
    one_target = bool((num_targets == 1).all())
    means = {}
    for name, values in per_user.items():
        mean = float(values.mean())
        if one_target and parse_metric(name)[0] == "hr":
            low, high = wilson_interval(mean, len(values))
        else:
            low, high = mean_interval(values)
        means[name] = Metric(name=name, value=mean, low=low, high=high)
    return means


@dataclass(frozen=True, kw_only=True)
class Group:
    """Quality for some users, or for some held-out items."""

    by: str
    """`activity`, `popularity` or `history`."""

    name: str
    """Its users or items: ``5–12 items``, ``head``."""

    num_users: int
    """Users in the means of the metrics."""

    num_short: int = 0
    """Users by length of history who have fewer items, and are answered from all of them."""

    metrics: dict[str, Metric]


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Counts of matching a run with a dataset by id; users are those that were counted."""

    run: str
    """Directory of the run."""

    is_own_dataset: bool
    """True if the run was trained on this dataset; another run of the comparison was not."""

    num_users_trained: int
    """Users of the run's training."""

    num_users_folded_in: int
    """Users that it was not trained on, answered from their history in the dataset."""

    num_users_without_history: int
    """Users of whom no item is known to the run, answered in popularity order."""

    num_items: int
    """Items of the run's catalogue: the candidates."""

    num_items_shared: int
    """Items of the dataset's catalogue in the run's training."""

    num_dataset_items: int
    """Items of the dataset's catalogue."""

    num_pairs_left_out: int
    """Held-out pairs in the training of the run, or of another run of the comparison."""

    num_earlier_runs: int
    """Runs whose weights it began with; what those were trained on is not known here."""

    def lines(self) -> list[str]:
        """Return lines to print beside the numbers."""
        unknown = pluralize(self.num_users_without_history, "user")
        without = f"; {unknown} without any history: popularity order"
        lines = [
            f"{self.run}: {'trained' if self.is_own_dataset else 'not trained'} on this dataset, "
            f"matched by id; {pluralize(self.num_users_trained, 'user')} known from "
            f"training, {pluralize(self.num_users_folded_in, 'new user')} answered from history"
            f"{without if self.num_users_without_history else ''}",
            f"{self.run}: candidates are of its own catalogue, "
            f"{pluralize(self.num_items, 'item')}, "
            f"which has {self.num_items_shared:,} of the dataset's {self.num_dataset_items:,}",
            f"{pluralize(self.num_pairs_left_out, 'held-out pair')} that were trained on are left "
            "out, as targets and as candidates",
        ]
        if self.num_earlier_runs:
            lines.append(
                f"{self.run}: began with the weights of {pluralize(self.num_earlier_runs, 'run')}; "
                "what was learned there may include held-out pairs"
            )
        return lines


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of one model on one held-out part, and everything that must be named beside them."""

    split: str
    """`validation` or `test`."""

    protocol: str
    """Protocol of the dataset's split."""

    candidates: str
    """Items that held-out ones were ranked against."""

    metrics: dict[str, Metric]
    """By name: ``metrics["ndcg@10"]``."""

    num_users: int
    """Users in the means of the metrics: those with at least one held-out item."""

    num_users_without_target: int
    """Users left out because they have no held-out item."""

    num_unseen_targets: int
    """Held-out items that the model cannot list because training never saw them; they count as
    misses.
    """

    num_short_candidate_lists: int
    """Users with fewer items to draw from than the negatives asked for; they got all of them
    (`sampled-N`) or draws from what there is (`nvidia-N`)."""

    num_samples: int
    """(User, candidate) pairs that were scored: the catalogue of each user under `full`, else
    targets and negatives, repeats counted. NVIDIA's NCF counts these pairs as the samples of an
    evaluation."""

    elapsed_s: float
    """Wall-clock time of scoring and ranking, in seconds."""

    num_users_unknown: int = 0
    """Users in the means who have no history, or only items that training never saw. They are
    answered in popularity order."""

    num_users_as_trained: int = 0
    """Users answered from the row that training left, without the items that became known later."""

    num_new_targets: int = 0
    """Held-out items that training never saw and the model lists by their features."""

    of_known: dict[str, Metric] = field(default_factory=dict)
    """The metrics without users answered by popularity; empty if all users are, or none."""

    user_index: NDArray[np.int32] = field(
        default_factory=lambda: np.zeros(0, dtype=np.int32), repr=False, compare=False
    )
    """The users counted, [num_users]; not kept by `as_dict`."""

    per_user: dict[str, NDArray[np.float64]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Each metric's value for each of these users, [num_users]; not kept by `as_dict`."""

    groups: tuple[Group, ...] = ()
    """Quality by group: of `more`, and of `history_lengths`."""

    matching: Matching | None = None
    """Counts of matching the run with a dataset it was not trained on; None on its own."""

    dataset_digest: str = field(default="", repr=False, compare=False)
    """Content digest of the dataset that the users are of; not kept by `as_dict`."""

    def __getitem__(self, name: str) -> float:
        """Return a metric's value: ``evaluation["ndcg@10"]``; SettingError lists the metrics."""
        if name not in self.metrics:
            lengths: dict[str, list[str]] = {}
            for measured in self.metrics:
                kind, k = parse_metric(measured)
                lengths.setdefault(kind, []).append(str(k))
            there = "; ".join(f"{kind}@{', '.join(found)}" for kind, found in lengths.items())
            raise SettingError(f"metric {name!r} was not measured; there are {there}")
        return self.metrics[name].value

    def __str__(self) -> str:
        """Return every number on a line of its own, below a heading for all."""
        above, below = [self._about(), *self._as_trained("")], self._fallback("")
        return "\n".join([*above, *map(str, self.metrics.values()), *below])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            [metric.name, f"{metric.value:.4f}", metric.interval()]
            for metric in self.metrics.values()
        ]
        note = "; ".join([*self._as_trained(""), *self._circumstances(""), *self._fallback("")])
        return html_table(self._about(), ["metric", "value", "95 % interval"], rows, note)

    def as_dict(self) -> Document:
        """Return everything but what only comparisons need, as plain JSON-safe values."""
        kept = {name: getattr(self, name) for name in _JSON_FIELDS}
        if not self.num_new_targets:  # absent from the files of data without new items
            del kept["num_new_targets"]
        return kept | {
            "metrics": {name: asdict(metric) for name, metric in self.metrics.items()},
            "of_known": {name: asdict(metric) for name, metric in self.of_known.items()},
            "groups": [asdict(group) for group in self.groups],
            "matching": self.matching and asdict(self.matching),
        }

    @classmethod
    def from_dict(cls, values: Document) -> Evaluation:
        """Return the evaluation that `as_dict` wrote down; unknown entries are passed over."""
        kept = {name: values[name] for name in _JSON_FIELDS if name in values}
        matching = values["matching"] and Matching(**values["matching"])
        groups = tuple(
            Group(**group | {"metrics": _metrics_of(group)}) for group in values.get("groups", ())
        )
        known = {name: Metric(**metric) for name, metric in values.get("of_known", {}).items()}
        return cls(
            **kept, metrics=_metrics_of(values), of_known=known, groups=groups, matching=matching
        )

    def speed(self) -> str:
        """Return a line on how long it took."""
        elapsed_s = max(self.elapsed_s, 1e-9)
        return (
            f"{pluralize(self.num_users, 'user')} ranked in {self.elapsed_s:.3g} s: "
            f"{compact(self.num_users / elapsed_s)} users/s, "
            f"{compact(self.num_samples / elapsed_s)} samples/s (user and candidate pairs)"
        )

    @property
    def share_unknown(self) -> float:
        """Share of the users whose history tells the model nothing."""
        return self.num_users_unknown / max(self.num_users, 1)

    @property
    def is_mostly_measured(self) -> bool:
        """False if over a tenth of the lists are the fallback, which every model shares."""
        return self.share_unknown <= _MOST_UNKNOWN

    def _fallback(self, label: str) -> list[str]:
        """Return a line on users who are answered in popularity order, if there are any."""
        if not self.num_users_unknown:
            return []
        users = f"{self.num_users_unknown:,} of {self.num_users:,} users ({self.share_unknown:.0%})"
        if not self.of_known:
            users = f"all {self.num_users:,} users"
        line = f"the model knows nothing of {users}, who are answered in popularity order"
        if not self.of_known:
            line += ": these are the numbers of popularity, whatever the model"
        else:
            shortest = {parse_metric(name)[0]: name for name in reversed(self.of_known)}
            shown = [self.of_known[shortest[kind]] for kind in ("hr", "ndcg") if kind in shortest]
            line += f"; without them {', '.join(map(str, shown))}" if shown else ""
        start = f"{label}: " if label else ""
        return [f"{start}{'' if self.is_mostly_measured else 'warning: '}{line}"]

    def definitions(self, metrics: Iterable[str] | None = None, label: str = "") -> list[str]:
        """Return lines to print beside the numbers: protocol, candidates, metrics and counts.

        If ``metrics`` are given, only they are explained. ``label`` names the model in lines about
        it.
        """
        names = self.metrics.keys()
        shown = names if metrics is None else names & set(metrics)
        kinds = dict.fromkeys(parse_metric(name)[0] for name in names if name in shown)
        lines = [
            f"{self.split} part, protocol {self.protocol}, {pluralize(self.num_users, 'user')}",
            *self._as_trained(label),
            f"candidates {self.candidates}: {describe_candidates(self.candidates, self.split)}",
            *(f"{kind}@k: {METRICS[kind]}" for kind in kinds),
            *(GROUPS[by] for by in dict.fromkeys(group.by for group in self.groups)),
            TIES,
            INTERVALS,
        ]
        return [*lines, *self._circumstances(label), *self._fallback(label)]

    def conditions(self, label: str = "") -> list[str]:
        """Return the lines of `definitions` that are not the same for every such evaluation."""
        own = (self._as_trained(label), self._circumstances(label), self._fallback(label))
        return [self._about(), *chain.from_iterable(own)]

    def _as_trained(self, label: str) -> list[str]:
        """Return a line on users whose validation items the model does not read, if any."""
        if not self.num_users_as_trained:
            return []
        users = pluralize(self.num_users_as_trained, "user")
        start = f"{label}: " if label else ""
        return [f"{start}{users} answered from trained rows, without the validation items"]

    def _about(self) -> str:
        about = f"{self.split} part, protocol {self.protocol}, candidates {self.candidates}"
        return f"{about}, {pluralize(self.num_users, 'user')}"

    def _circumstances(self, label: str) -> list[str]:
        lines = self.matching.lines() if self.matching else []
        # If the data have new items, the model decides how many of them are misses.
        has_new = self.candidates == "new" or any(n.startswith("new_items@") for n in self.metrics)
        start = f"{label}: " if label and has_new else ""
        if count := self.num_users_without_target:
            lines.append(f"{pluralize(count, 'user')} without any held-out item, left out")
        if count := self.num_unseen_targets:
            items = pluralize(count, "held-out item")
            lines.append(f"{start}{items} never seen in training, each a miss")
        if count := self.num_new_targets:
            items = pluralize(count, "held-out item")
            lines.append(f"{start}{items} never seen in training, listed by their features")
        if count := self.num_short_candidate_lists:
            lines.append(
                f"{pluralize(count, 'user')} with fewer negatives than asked for, ranked against "
                "what there is"
            )
        if short := [group for group in self.groups if group.num_short]:
            counts = "; ".join(f"{group.name}: {group.num_short:,}" for group in short)
            lines.append(f"users with fewer items give all that they have ({counts})")
        return lines


def _metrics_of(values: Document) -> dict[str, Metric]:
    """Return the metrics that `as_dict` wrote down, of all users or of a group."""
    return {name: Metric(**metric) for name, metric in values["metrics"].items()}


# Every field but the second line's is in metrics.jsonl: a new one raises FORMAT_VERSION of
# runs/config.py.
_NOT_IN_JSON = {
    *("metrics", "of_known", "groups", "matching"),
    *("user_index", "per_user", "dataset_digest"),
}
_JSON_FIELDS = tuple(entry.name for entry in fields(Evaluation) if entry.name not in _NOT_IN_JSON)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Difference of two evaluations, second less first, with its 95 % interval over users."""

    name: str
    value: float
    # Ends of mean ± 1.96 standard errors; p_value reverses the formula.
    low: float | None
    high: float | None

    @property
    def is_clear(self) -> bool:
        """True if the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def p_value(self) -> float:
        """Two-sided p-value by the interval's normal distribution; 1 without an interval."""
        if self.low is None or self.high is None or not self.value:
            return 1.0
        # The interval gives the standard error: it is 2 * 1.96 standard errors wide.
        standard_error = (self.high - self.low) / (2 * _Z_95)
        if not standard_error:  # the same for every user
            return 0.0
        # 2 * (1 - Phi(z)) = erfc(z / sqrt(2))
        return math.erfc(abs(self.value) / standard_error / math.sqrt(2.0))

    def text(self) -> str:
        """Return the value as text, with a star if the interval leaves out zero."""
        return f"{self.value:+.4f}{' *' if self.is_clear else ''}"

    def interval(self) -> str:
        """Return the interval as text, empty if there is none."""
        return "" if self.low is None else f"{self.low:+.4f} to {self.high:+.4f}"


def paired_difference(
    name: str, first: NDArray[np.float64], second: NDArray[np.float64]
) -> Difference:
    """Return the mean ± 1.96 standard errors of ``second - first``, users in the same order.

    The difference is paired, because users differ far more from one another than models do on one
    user: two evaluations whose own intervals overlap may still differ clearly.
    """
    assert first.shape == second.shape, "a paired difference is of the same users"
    difference = second - first
    low, high = mean_interval(difference)
    return Difference(name=name, value=float(difference.mean()), low=low, high=high)


def compare_evaluations(first: Evaluation, second: Evaluation) -> dict[str, Difference]:
    """Return the difference in each metric that both have per user, by name; coverage has none.

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
        if name in second.per_user
    }
