"""The metrics by name, and what each means: one definition, printed wherever the number is."""

from __future__ import annotations

import re
from collections.abc import Iterable

from foretaste.errors import SettingError
from foretaste.evaluation.config import CandidateRule

METRICS = {
    "hr": "share of users with at least one held-out item among their first k",
    "ndcg": "DCG of the first k (gain 1 / log2(1 + rank)) over the best DCG that "
    "min(k, number of held-out items) items can reach",
    "recall": "held-out items among the first k, over min(k, number of held-out items)",
    "recall_all": "held-out items among the first k, over all held-out items",
    "mrr": "1 / rank of the first held-out item, 0 if it is not among the first k",
    "coverage": "share of the catalogue found in at least one user's first k "
    "(candidates full only; of equal scores the lower item index comes first)",
}
TIES = "equal scores count by expectation: as if drawn in random order, averaged over all orders"
INTERVALS = (
    "intervals are 95 % over users: mean ± 1.96 standard errors; Wilson's for hr where every user "
    "has one held-out item; none for coverage"
)


def metric_name(kind: str, k: int) -> str:
    """The name of a metric at a list length: ``ndcg@10``."""
    return f"{kind}@{k}"


def parse_metric(name: str) -> tuple[str, int]:
    """The kind and list length that a metric's name stands for: ``("ndcg", 10)``.

    Raises SettingError naming the metrics there are.
    """
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]*)", name.strip().lower())
    if match is None or match[1] not in METRICS:
        raise SettingError(
            f"there is no metric {name!r}; use one of {', '.join(METRICS)} "
            "followed by @ and a list length, such as ndcg@10"
        )
    return match[1], int(match[2])


def canonical_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """The names as tables have them; SettingError names the metrics there are."""
    return tuple(metric_name(*parse_metric(name)) for name in names)


def lengths_of(names: Iterable[str]) -> tuple[int, ...]:
    """The list lengths of metrics."""
    return tuple(parse_metric(name)[1] for name in names)


def describe_candidates(candidates: str, split: str) -> str:
    """Candidates that a held-out item of ``split`` was ranked against, in words."""
    rule = CandidateRule.parse(candidates)
    known = "training, fold-in and validation" if split == "test" else "training and fold-in"
    if rule.kind == "full":
        return f"the whole catalogue without the user's known items ({known})"
    if rule.kind == "fixed":
        return (
            "the candidates that came with the dataset for each user, a held-out item among them "
            "counted once; such metrics do not agree with full ones, not even in expectation"
        )
    outside = f"outside the user's known ({known}) and held-out items"
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
