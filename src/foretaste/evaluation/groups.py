"""Quality by group: users by activity, held-out items by popularity, new users by their history.

Shape suffixes: U users, T targets of all users, N items of all histories, I items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste._util.formatting import pluralize
from foretaste.evaluation.lists import ITEM_GROUPS
from foretaste.evaluation.metrics import TargetRanks, user_metrics
from foretaste.evaluation.result import Group, mean_metrics
from foretaste.ops.random import Purpose, hash_words, stream_key

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_QUARTILES = (0.25, 0.5, 0.75)


def activity_groups(
    per_user: Mapping[str, Floats], length_U: Integers, num_targets_U: Integers
) -> Iterator[Group]:
    """Return the quality of users in quarters by the number of items in their history.

    Users with the same number stay together, so a quarter may be larger, or missing.
    """
    # Inverted CDF: a bound is a length that some user has, never one between two.
    bounds = np.quantile(length_U, _QUARTILES, method="inverted_cdf")
    quarter_U = np.searchsorted(bounds, length_U)
    for quarter in np.unique(quarter_U):
        users = np.flatnonzero(quarter_U == quarter)
        fewest, most = length_U[users].min(), length_U[users].max()
        yield Group(
            by="activity",
            name=pluralize(most, "item") if fewest == most else f"{fewest:,}–{most:,} items",
            num_users=len(users),
            metrics=mean_metrics(
                {name: values[users] for name, values in per_user.items()}, num_targets_U[users]
            ),
        )


def popularity_groups(
    ranks: TargetRanks, heldout: HeldOut, group_I: Integers, k: Sequence[int]
) -> Iterator[Group]:
    """Quality for the held-out items of each popularity, ranked among all candidates.

    A user counts for a group if one of their held-out items is in it. Items that training never
    saw are a group, ``new``, if the catalogue has such items; otherwise they are in no group.
    """
    names = (*ITEM_GROUPS, "new") if heldout.has_new_items else ITEM_GROUPS

    def group_of(item_index: NDArray[np.integer]) -> NDArray[np.integer]:
        is_new = item_index >= heldout.num_train_items
        return np.where(is_new, len(ITEM_GROUPS), group_I[np.where(is_new, 0, item_index)])

    row_N, group_N = heldout.target.row_index(), group_of(heldout.target.item_index)
    group_T = group_of(ranks.item_T)
    for number, name in enumerate(names):
        is_in_T = group_T == number
        num_targets_U = np.bincount(row_N[group_N == number], minlength=heldout.num_users)
        users = np.flatnonzero(num_targets_U)
        if len(users):
            part = TargetRanks(
                # Users of the group are numbered from 0.
                user_T=np.searchsorted(users, ranks.user_T[is_in_T]),
                above_T=ranks.above_T[is_in_T],
                tied_T=ranks.tied_T[is_in_T],
                item_T=ranks.item_T[is_in_T],
                num_targets_U=num_targets_U[users],
            )
            yield Group(
                by="popularity",
                name=name,
                num_users=len(users),
                metrics=mean_metrics(user_metrics(part, k), part.num_targets_U),
            )


def history_groups(
    rank: Callable[[HeldOut], TargetRanks],
    heldout: HeldOut,
    lengths: Sequence[int],
    k: Sequence[int],
) -> Iterator[Group]:
    """Quality for new users who are answered from ``length`` items of their history, by length.

    ``rank`` gives the ranks of the targets of users and their histories.
    """
    for length in lengths:
        ranks = rank(with_first_items(heldout, length))
        yield Group(
            by="history",
            name=pluralize(length, "item"),
            num_users=heldout.num_users,
            num_short=int((heldout.history.lengths() < length).sum()),
            metrics=mean_metrics(user_metrics(ranks, k), ranks.num_targets_U),
        )


def with_first_items(heldout: HeldOut, length: int) -> HeldOut:
    """Return the same users with ``length`` items of each history, or all if there are fewer.

    A hash of seed, user and item orders the items, so a longer cut has the items of a shorter one.
    Targets and known items stay.
    """
    history = heldout.history
    row_N = history.row_index()
    # Users times items may exceed 32 bits. New items share numbers, because data that gain new
    # items keep the cuts of the other items.
    num_items = heldout.num_train_items
    counter_N = heldout.user_index[row_N].astype(np.int64) * num_items + history.item_index
    key = stream_key(heldout.seed, Purpose.HISTORY_LENGTHS)
    word_N = hash_words(key, torch.from_numpy(counter_N)).numpy()
    place_N = np.empty_like(counter_N)
    # The place of each item in its own history, by hash. `lexsort` sorts by its last key first.
    place_N[np.lexsort((word_N, row_N))] = np.arange(len(row_N)) - history.offsets[row_N]
    return replace(heldout, history=history.where(place_N < length))
