"""Ranking metrics of every user in closed form, ties counted by expectation.

`hr`, `ndcg`, `recall`, `recall_all` and `mrr` take scores of any origin.

A target with ``above`` candidates scored higher and ``tied`` scored the same (itself included)
has any of the ranks above + 1 .. above + tied with equal chance (McSherry & Najork 2008,
"Computing information retrieval performance measures efficiently in the presence of tied
scores"). So a constant scorer scores what chance scores.

Shape suffixes: U users, I items, T targets of all users, F those in each user's first group,
P ranks of the longest list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretaste.errors import SettingError
from foretaste.evaluation.config import metric_name, validate_lengths
from foretaste.ops.limits import LIMITS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The number above the first target of a user none of whose targets could be ranked.
_BELOW_EVERY_LIST = 1 << 40


@dataclass(frozen=True, kw_only=True, eq=False)
class TargetRanks:
    """Ranks of the targets of U users among each user's candidates."""

    user_T: Integers
    """The user of each target that could be ranked, in [0, U)."""

    above_T: Integers
    """Candidates of this user with a higher score; exact within the longest list."""

    tied_T: Integers
    """Candidates with the same score, the target itself included: at least 1."""

    item_T: Integers
    """The target itself."""

    num_targets_U: Integers
    """Held-out items of each user, those that training never saw included: at least 1."""


def user_metrics(ranks: TargetRanks, k: Sequence[int]) -> dict[str, Floats]:
    """Return values [U] in [0, 1] of HR, NDCG, Recall, plain recall and MRR at each list length.

    - ``hr@k``: chance that any target is among the first k (He et al. 2017, arXiv 1708.05031)
    - ``ndcg@k``: DCG@k / ideal DCG over min(k, targets); DCG@k = sum of 1 / log2(1 + rank)
      (Järvelin & Kekäläinen 2002)
    - ``recall@k``: targets among the first k / min(k, targets) (Liang et al. 2018, arXiv
      1802.05814)
    - ``recall_all@k``: targets among the first k / targets
    - ``mrr@k``: 1 / rank of the first target, 0 beyond k (Voorhees 1999)
    """
    # A list that is longer than the last rank of any target, and than any user has targets, has the
    # metrics of that length. So a `k` of a million makes no table of a million ranks.
    last_T = ranks.above_T + ranks.tied_T
    longest = max(1, int(last_T.max(initial=1)), int(ranks.num_targets_U.max(initial=1)))
    lengths = [min(length, longest) for length in k]
    count_to_rank = np.arange(max(lengths) + 1, dtype=np.float64)
    discounts = 1 / np.log2(np.arange(2, max(lengths) + 2))
    dcg_to_rank = np.concatenate(([0.0], np.cumsum(discounts)))
    hr_UK, mrr_UK = _first_target(ranks, lengths)
    values: dict[str, Floats] = {}
    for column, (named, length) in enumerate(zip(k, lengths, strict=True)):
        ideal_U = np.minimum(ranks.num_targets_U, length)
        hits_U = _expected_sum(ranks, count_to_rank, length)
        dcg_U = _expected_sum(ranks, dcg_to_rank, length)
        # The name recall has several definitions (Tamm et al. 2021, arXiv 2206.12858): the
        # Recall@20 of Mult-VAE on ML-20M is .395 over min(k, targets), and .354 over all targets.
        # Sums of rounded discounts may exceed the ideal by a last digit, so they are cut at 1.
        values |= {
            metric_name("hr", named): hr_UK[:, column],
            metric_name("ndcg", named): np.minimum(dcg_U / dcg_to_rank[ideal_U], 1.0),
            metric_name("recall", named): np.minimum(hits_U / ideal_U, 1.0),
            metric_name("recall_all", named): np.minimum(hits_U / ranks.num_targets_U, 1.0),
            metric_name("mrr", named): mrr_UK[:, column],
        }
    return values


def hr(scores: ArrayLike, targets: Sequence[ArrayLike], k: int) -> Floats:
    """``hr@k`` [U] as in `user_metrics`; arguments of `ranks_of_scores`."""
    return _at_length("hr", scores, targets, k)


def ndcg(scores: ArrayLike, targets: Sequence[ArrayLike], k: int) -> Floats:
    """``ndcg@k`` [U] as in `user_metrics`; arguments of `ranks_of_scores`."""
    return _at_length("ndcg", scores, targets, k)


def recall(scores: ArrayLike, targets: Sequence[ArrayLike], k: int) -> Floats:
    """``recall@k`` [U] as in `user_metrics`; arguments of `ranks_of_scores`."""
    return _at_length("recall", scores, targets, k)


def recall_all(scores: ArrayLike, targets: Sequence[ArrayLike], k: int) -> Floats:
    """``recall_all@k`` [U] as in `user_metrics`; arguments of `ranks_of_scores`."""
    return _at_length("recall_all", scores, targets, k)


def mrr(scores: ArrayLike, targets: Sequence[ArrayLike], k: int) -> Floats:
    """``mrr@k`` [U] as in `user_metrics`; arguments of `ranks_of_scores`."""
    return _at_length("mrr", scores, targets, k)


def _at_length(kind: str, scores: ArrayLike, targets: Sequence[ArrayLike], k: int) -> Floats:
    (length,) = validate_lengths((k,))
    return user_metrics(ranks_of_scores(scores, targets), (length,))[metric_name(kind, length)]


def ranks_of_scores(scores: ArrayLike, targets: Sequence[ArrayLike]) -> TargetRanks:
    """Return ranks of each user's targets among the items of a row of scores.

    Args:
        scores: [U, I], higher is better. Minus infinity hides an item, such as one of the user's
            history, and makes a target a miss.
        targets: column numbers of each user's held-out items, at least one.

    Raises SettingError for other shapes, NaN, users without targets and columns that do not exist.
    """
    score_UI, sets = np.asarray(scores), [np.unique(np.asarray(items)) for items in targets]
    num_targets_U = np.array([len(items) for items in sets], dtype=np.int64)
    if score_UI.ndim != 2 or len(score_UI) != len(sets) or np.isnan(score_UI).any():
        raise SettingError(
            f"scores have shape {score_UI.shape}, and targets are of {len(sets)} users; give a row "
            "of numbers, none of them nan, for each user"
        )
    user_T = np.repeat(np.arange(len(sets)), num_targets_U)
    item_T = np.array([item for items in sets for item in items], dtype=np.int64)
    if not num_targets_U.all() or (item_T < 0).any() or (item_T >= score_UI.shape[1]).any():
        raise SettingError(
            f"targets must be columns of scores, from 0 to {score_UI.shape[1] - 1}, and one or "
            "more for each user; leave out users without any"
        )
    is_ranked_T = score_UI[user_T, item_T] > -np.inf
    user_T, item_T = user_T[is_ranked_T], item_T[is_ranked_T]
    rows = [
        (score_UI[user], score_UI[user, item]) for user, item in zip(user_T, item_T, strict=True)
    ]
    return TargetRanks(
        user_T=user_T,
        above_T=np.array([(row_I > score).sum() for row_I, score in rows], dtype=np.int64),
        tied_T=np.array([(row_I == score).sum() for row_I, score in rows], dtype=np.int64),
        item_T=item_T,
        num_targets_U=num_targets_U,
    )


def _expected_sum(ranks: TargetRanks, gain_to_rank: Floats, length: int) -> Floats:
    """Return the expected gain [U] of all targets of a user; ``gain_to_rank[p]`` sums ranks 1..p.

    A target has each of its ``tied`` ranks with chance 1 / tied, so its expected gain is the sum of
    their gains over tied.
    """
    first_T = np.minimum(ranks.above_T, length)
    last_T = np.minimum(ranks.above_T + ranks.tied_T, length)
    gain_T = (gain_to_rank[last_T] - gain_to_rank[first_T]) / ranks.tied_T
    sum_U = np.zeros(len(ranks.num_targets_U))
    # Adds in the order of the rows. All targets of a user come from one batch in one order, so the
    # sum is the same bits however users are shared out to processes.
    np.add.at(sum_U, ranks.user_T, gain_T)
    return sum_U


def _first_target(ranks: TargetRanks, k: Sequence[int]) -> tuple[Floats, Floats]:
    """HR and MRR [U, lengths]: both ask only for the first target of a user.

    It is one of the r targets in the user's highest group of t equal scores that holds any. Its
    rank within the group is above j with chance (t - r)/t · (t - r - 1)/(t - 1) · ... (j factors).
    """
    num_users = len(ranks.num_targets_U)
    above_U = np.full(num_users, _BELOW_EVERY_LIST)
    np.minimum.at(above_U, ranks.user_T, ranks.above_T)
    in_first_T = ranks.above_T == above_U[ranks.user_T]
    user_F = ranks.user_T[in_first_T]
    tied_U = np.ones(num_users, dtype=np.int64)
    tied_U[user_F] = ranks.tied_T[in_first_T]
    targets_U = np.bincount(user_F, minlength=num_users)
    rank_P = np.arange(1, max(k) + 1)
    at_K = np.asarray(k) - 1
    hr_UK = np.empty((num_users, len(k)))
    mrr_UK = np.empty_like(hr_UK)
    num_at_once = max(1, LIMITS["cpu"].rank_cells // max(k))
    for start in range(0, num_users, num_at_once):
        users = slice(start, start + num_at_once)
        # Ranks of the group before rank p, [U, P]: below 0 before the group begins.
        passed_UP = rank_P - 1 - above_U[users, None]
        left_UP = tied_U[users, None] - passed_UP
        others_UP = np.maximum(left_UP - targets_U[users, None], 0)
        # Given that no target has an earlier rank of the group, rank p holds none with chance
        # (left - targets) / left, where `left` ranks of the group are not passed yet.
        not_here_UP = np.where(passed_UP < 0, 1.0, others_UP / np.maximum(left_UP, 1))
        not_yet_UP = np.cumprod(not_here_UP, axis=1)
        # MRR = sum over p of P(first target at rank p) / p, and HR@k = 1 - P(none up to k).
        first_here_UP = -np.diff(not_yet_UP, axis=1, prepend=1.0)
        hr_UK[users] = 1.0 - not_yet_UP[:, at_K]
        mrr_UK[users] = np.cumsum(first_here_UP / rank_P, axis=1)[:, at_K]
    return hr_UK, mrr_UK
