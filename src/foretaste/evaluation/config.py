"""Settings of an evaluation and what they mean: candidates, list lengths, metrics by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from foretaste._util.formatting import similar_names
from foretaste._util.settings import Count, Range, check_settings, setting_error, validate
from foretaste.errors import SettingError

Lengths = Annotated[tuple[int, ...], Range(at_least=1)]

CANDIDATES_HELP = "full, new, fixed, sampled-N or nvidia-N with N at least 1, such as sampled-99"

METRICS = {
    "hr": "share of users with at least one held-out item among their first k",
    "ndcg": "DCG of the first k (gain 1 / log2(1 + rank)) over the best DCG that "
    "min(k, number of held-out items) items can reach",
    "recall": "held-out items among the first k, over min(k, number of held-out items)",
    "recall_all": "held-out items among the first k, over all held-out items",
    "new_items": "share of users with an item that training never saw among their first k "
    "(candidates full, and data that have features of such items)",
    "mrr": "mean reciprocal rank: 1 / rank of the first held-out item, 0 if it is not among the "
    "first k",
    "coverage": "share of the catalogue found in at least one user's first k "
    "(candidates full only; of equal scores the lower item index comes first)",
    "novelty": "mean self-information of the first k in bits, -log2 of the share of training users "
    "who have the item",
    "long_tail": "share of the first k that is in the long tail: items outside the most popular "
    "ones, which hold 80 % of the training interactions",
    "popularity_lift": "mean popularity (training users) of the first k over that of users' "
    "histories, less 1: 0 is no bias, 1 is twice as popular",
}
LIST_METRICS = ("novelty", "long_tail", "popularity_lift")
"""Metrics that describe lists alone: they need ``more`` and candidates full. lists.py measures them
in this order."""

OF_LISTS = ("coverage", "new_items", *LIST_METRICS)
"""Metrics that say nothing of held-out items."""

GROUPS = {
    "activity": "users by activity: in quarters by the number of items in their history",
    "popularity": "held-out items by popularity: head are the most popular items, which hold 20 % "
    "of the training interactions, tail those outside the ones that hold 80 %, mid those between, "
    "new those that training never saw, if the data have features of such items; each group has "
    "the metrics of its items alone, over the users who have one",
    "history": "new users by the number of items known of them: histories are cut to so many, "
    "chosen by hash; targets and candidates stay the same",
}
"""Groups of users and items that get metrics of their own."""

TIES = "equal scores count by expectation: as if drawn in random order, averaged over all orders"
INTERVALS = (
    "intervals are 95 % over users: mean ± 1.96 standard errors; Wilson's for hr where every user "
    "has one held-out item; none for coverage"
)


_WHOLE: tuple[Literal["full", "new", "fixed"], ...] = ("full", "new", "fixed")


@dataclass(frozen=True, kw_only=True)
class CandidateRule:
    """``candidates``, parsed: ``sampled-99`` is kind ``sampled`` with 99 negatives."""

    kind: Literal["full", "new", "fixed", "sampled", "nvidia"]
    num_negatives: int
    """Number drawn for each user; 0 if none are drawn."""

    def num_draws(self, num_items: int) -> int:
        """Return the number of draws for each user; ``sampled`` draws no item twice."""
        return min(self.num_negatives, num_items) if self.kind == "sampled" else self.num_negatives

    @classmethod
    def parse(cls, candidates: str) -> CandidateRule:
        """Return the rule that ``candidates`` names; SettingError says which there are."""
        candidates = validate("candidates", candidates, str)
        for whole in _WHOLE:
            if candidates == whole:
                return cls(kind=whole, num_negatives=0)
        match = re.fullmatch(r"(sampled|nvidia)-([1-9][0-9]{0,6})", candidates)
        if match is None:
            raise setting_error("candidates", candidates, CANDIDATES_HELP)
        kind: Literal["sampled", "nvidia"] = "sampled" if match[1] == "sampled" else "nvidia"
        return cls(kind=kind, num_negatives=int(match[2]))


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Settings of `evaluate`."""

    candidates: str = "full"
    """Items that a held-out one is ranked against: `full` (the catalogue without the user's known
    items), `new` (the held-out items that training never saw), `sampled-N` (N distinct negatives),
    `nvidia-N` (N drawn with replacement, repeats left out) or `fixed` (those that came with the
    dataset)."""

    k: Lengths = (10, 20, 50, 100)
    """Lengths of the lists, sorted: each metric is given at each of them."""

    evaluation_batch: Count | None = None
    """Users ranked at once; unless given, as many as fit a CPU's cache (8 MiB of scores, or 64
    users) or 512 MiB on a GPU.
    Ranking takes three times that."""

    more: bool = False
    """Measure the lists beyond accuracy too (novelty, long tail, popularity lift), and quality by
    group: users by activity, held-out items by popularity."""

    history_lengths: Lengths | None = None
    """Measure users unseen in training also with that many items of their history: 1 2 5."""

    def __post_init__(self) -> None:
        check_settings(self)
        CandidateRule.parse(self.candidates)
        object.__setattr__(self, "k", validate_lengths(self.k))
        if self.history_lengths is not None:
            lengths = validate_lengths(self.history_lengths, "history_lengths", "length")
            object.__setattr__(self, "history_lengths", lengths)

    @property
    def rule(self) -> CandidateRule:
        """``candidates``, parsed."""
        return CandidateRule.parse(self.candidates)


class EvaluationOptions(TypedDict, total=False):
    """Keywords of `EvaluationConfig`, in the types that callers have."""

    candidates: str
    k: int | Sequence[int]
    evaluation_batch: int | None
    more: bool
    history_lengths: int | Sequence[int] | None


def validate_lengths(
    given: Iterable[int], name: str = "k", kind: str = "list length"
) -> tuple[int, ...]:
    """Return the distinct lengths of a setting, ascending; SettingError if none or below 1."""
    lengths: tuple[int, ...] = validate(name, given, Lengths)
    if not lengths:
        raise setting_error(name, lengths, f"one {kind} or more, such as 10")
    return tuple(sorted(set(lengths)))


def default_metric(protocol: str) -> str:
    """Return the metric that chooses the best epoch unless another is asked for."""
    if protocol.startswith("new-items"):
        return "recall_all@20"
    return "ndcg@100" if protocol in ("held-out-users", "unseen") else "ndcg@10"


def metric_name(kind: str, k: int) -> str:
    """Return the name of a metric at a list length: ``ndcg@10``."""
    return f"{kind}@{k}"


def parse_metric(name: str) -> tuple[str, int]:
    """Return the kind and list length that a metric's name stands for: ``("ndcg", 10)``.

    Raises SettingError naming the metrics there are.
    """
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]*)", name.strip().lower())
    if match is None or match[1] not in METRICS:
        meant = similar_names(match[1], METRICS) if match else []
        suggestion = f"; did you mean {meant[0]}@{match[2]}?" if match and meant else ""
        raise SettingError(
            f"there is no metric {name!r}; use one of {', '.join(METRICS)} "
            f"followed by @ and a list length, such as ndcg@10{suggestion}"
        )
    return match[1], int(match[2])


def canonical_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as tables have them; SettingError names the metrics there are."""
    return tuple(metric_name(*parse_metric(name)) for name in names)


def measures_lists(names: Iterable[str]) -> bool:
    """Return True if any of the metrics describes lists alone, and so needs `more`."""
    return any(parse_metric(name)[0] in LIST_METRICS for name in names)


def lengths_of(names: Iterable[str]) -> tuple[int, ...]:
    """Return the list lengths of metrics."""
    return tuple(parse_metric(name)[1] for name in names)


def describe_candidates(candidates: str, split: str) -> str:
    """Describe the candidates that a held-out item of ``split`` was ranked against."""
    rule = CandidateRule.parse(candidates)
    known = "training, fold-in and validation" if split == "test" else "training and fold-in"
    if rule.kind == "full":
        return f"the whole catalogue without the user's known items ({known})"
    if rule.kind == "new":
        return (
            "the held-out items that training never saw, as far as the model lists them, without "
            f"the user's known items ({known}); other held-out items do not count"
        )
    if rule.kind == "fixed":
        return (
            "the candidates that came with the dataset for each user, a held-out item among them "
            "counted once; such metrics do not agree with full ones, not even in expectation"
        )
    outside = f"outside the user's known ({known}) and held-out items"
    # Krichene & Rendle 2020, "On sampled metrics for item recommendation".
    if rule.kind == "sampled":
        return (
            f"{rule.num_negatives} distinct random items {outside}; sampled metrics do not "
            "agree with full ones, not even in expectation"
        )
    return (
        f"{rule.num_negatives} random items {outside}, drawn with replacement and repeats left "
        "out, as NVIDIA's NCF did; such metrics do not agree with full ones, and read higher than "
        f"sampled-{rule.num_negatives}"
    )
