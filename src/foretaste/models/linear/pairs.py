"""Counts of pairs of items in the histories of the same users, the base of every linear model.

With X the users' histories and V the users' weights, X'VX adds up the weights of the users who have
both items. With an order, the source of a step has the items up to it, each weighted by its
distance, and its target is the next item: S and T have a row for each step. S is never made,
because two places p < q of a history add ``decay[q - p - 1]`` to S'T, and to S'S the sum over the
later steps of the product of both weights.

Shape suffixes: U users, I items of the catalogue, N entries of histories, W places of the window,
K neighbours of an item, T popular pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste.models.base import FitProgress
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.workers import parallel_map

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries, PopularPairs, Strength

Numbers = NDArray[np.float64]

NO_ORDER = np.zeros(0)

CPU = torch.device("cpu")

MOST_POPULAR = 6_000
"""Number of items whose pairs are all kept while neighbours are found."""

LARGEST_VALUE = 2_000
"""Largest number of items of a feature value that propose each other as neighbours."""

NUM_CHUNKS = 256
"""Chunks of items with about equal numbers of pairs, which threads take one after another."""


def user_weights(histories: HistoryTensors, power: float) -> Numbers:
    """Return weights [U] of users with n items: ``n ** -power``, scaled so that the items' mean
    number of users is unchanged (DAN: Park et al. 2025, arXiv 2504.05805)."""
    length_U = histories.lengths().cpu().double().numpy()
    weight_U: Numbers = np.maximum(length_U, 1.0) ** -power
    if total := float(length_U @ weight_U):
        weight_U *= length_U.sum() / total
    return weight_U


def entry_weights(histories: HistoryTensors) -> Numbers:
    """Return the weights of the entries [N]."""
    if histories.weight is None:
        return np.ones(histories.item_index.numel())
    return histories.weight.cpu().double().numpy()


def entries_of(
    histories: HistoryTensors, weight_U: Numbers, value_N: Numbers, decay_W: Numbers = NO_ORDER
) -> Entries:
    """Return histories as the loops over pairs read them.

    Args:
        histories: of all users.
        weight_U: the weights of users.
        value_N: the weights of entries; each 1 with an order.
        decay_W: the weight in a source of the item that lies d places back.
    """
    from foretaste.models.linear.kernels import Entries  # imports Numba

    item_N, user_N = histories.item_index.cpu(), histories.row_index().cpu().int()
    if len(decay_W):
        item_N = item_N[histories.oldest_first().cpu()]
    entry_N = torch.sort(item_N, stable=True).indices
    count_I = torch.bincount(item_N, minlength=histories.num_items)
    return Entries(
        offset_U=histories.offsets.cpu().numpy(),
        item_N=item_N.numpy(),
        value_N=value_N,
        weight_U=weight_U,
        first_I=np.concatenate(([0], count_I.cumsum(0).numpy())),
        entry_N=entry_N.numpy(),
        user_N=user_N[entry_N].numpy(),
        decay_W=decay_W,
        product_WW=_products(decay_W),
    )


def entries_of_features(
    features: HistoryTensors | None, num_items: int, weight: float = 0.0, power: float = 0.0
) -> Entries:
    """Return feature values as users: a value of n items weighs ``weight * n ** -power``."""
    if features is None:
        nothing = torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32)
        features = HistoryTensors(*nothing, num_items)
    size_V = features.lengths().cpu().double().numpy()
    return entries_of(features, weight * size_V**-power, entry_weights(features))


def _products(decay_W: Numbers) -> Numbers:
    """At [D, m] the sum of ``decay[d] * decay[d + D]`` over d from 0 to m, as far as D + m < W."""
    window = len(decay_W)
    product_WW = np.zeros((window, window))
    for distance in range(window):
        products = decay_W[: window - distance] * decay_W[distance:]
        product_WW[distance, : window - distance] = products.cumsum()
    return product_WW


def gram_diagonal(entries: Entries) -> Numbers:
    """Return the diagonal [I] of G: the weights of each item's users, and with an order the
    diagonal of S'S."""
    user_N = np.repeat(np.arange(len(entries.weight_U)), np.diff(entries.offset_U))
    term_N = entries.weight_U[user_N] * np.square(entries.value_N)
    if window := len(entries.decay_W):
        # An item is in the sources of its own step and the later ones, but for the newest item.
        num_later_N = entries.offset_U[user_N + 1] - 1 - np.arange(len(user_N))
        square_W = np.concatenate(([0.0], entries.product_WW[0]))
        term_N += square_W[np.minimum(num_later_N, window)]
    sums = np.bincount(entries.item_N, term_N, minlength=len(entries.first_I) - 1)
    return sums.astype(np.float64, copy=False)  # integers if there are no entries


def count_tables(entries: Entries, progress: FitProgress) -> Numbers:
    """X'VX of all items, and with an order S'S and T'S: [1 or 3, I, I]."""
    num_items = len(entries.first_I) - 1
    table_3II = np.zeros((3 if len(entries.decay_W) else 1, num_items, num_items))
    for num_done in add_pairs(entries, table_3II):
        progress("counting pairs of items", num_done, num_items)
    return table_3II


def add_pairs(entries: Entries, table_3II: Numbers) -> Iterator[int]:
    """Add pairs of histories to tables of `count_tables`; yield the number of finished items."""
    from foretaste.models.linear.kernels import count_rows

    def count_chunk(items: slice) -> int:
        count_rows(entries, items.start, table_3II[:, items])
        return int(items.stop)

    yield from parallel_map(count_chunk, list(_chunks(entries)), CPU)


class Neighbors(NamedTuple):
    """The strongest others of each item."""

    other_IK: NDArray[np.int32]
    """Items; -1 behind the last if there are fewer than K."""
    value_IK: NDArray[np.float32]
    """A number for each: its strength, its sum in A, or its weight."""
    popular: PopularPairs


def find_neighbors(
    entries: Entries,
    features: Entries,
    num_neighbors: int,
    strength: Strength,
    progress: FitProgress,
    *,
    keeps_sums: bool = False,
) -> Neighbors:
    """Return the strongest others of each item, and their strength.

    With ``keeps_sums``, A of each pair in place of the strength, without the features that have
    found some of them, and G of the popular pairs, without features too.
    """
    from foretaste.models.linear.kernels import PopularPairs, find_strongest

    num_items = len(entries.first_I) - 1
    other_IK = np.full((num_items, num_neighbors), -1, np.int32)
    value_IK = np.zeros((num_items, num_neighbors), np.float32)
    num_popular = min(num_items, MOST_POPULAR) if keeps_sums else 0
    item_I = np.argsort(-np.diff(entries.first_I), kind="stable")
    rank_I = np.empty(num_items, np.int32)
    rank_I[item_I] = np.arange(num_items)
    gram_T = np.zeros(num_popular * (num_popular + 1) // 2)
    popular = PopularPairs(rank_I, item_I, num_popular, gram_T)

    def find_chunk(items: slice) -> int:
        found = other_IK[items], value_IK[items]
        find_strongest(entries, features, items.start, strength, popular, keeps_sums, *found)
        return int(items.stop)

    for num_done in parallel_map(find_chunk, list(_chunks(entries, features)), CPU):
        progress("counting pairs of items", num_done, num_items)
    return Neighbors(other_IK, value_IK, popular)


def _chunks(*each: Entries) -> Iterator[slice]:
    """Yield consecutive items, together all."""
    # An item without users costs something too.
    before_I = np.arange(len(each[0].first_I))
    for entries in each:
        num_pairs_N = np.diff(entries.offset_U)[entries.user_N]
        before_I += np.concatenate(([0], num_pairs_N.cumsum()))[entries.first_I]
    bounds = np.searchsorted(before_I, np.linspace(0, before_I[-1], NUM_CHUNKS + 1))
    for start, stop in itertools.pairwise(bounds):
        if start < stop:
            yield slice(int(start), int(stop))
