"""Loops over pairs of items, compiled by Numba. The first fit of a process imports them.

A pair's sum is float64, and one thread adds its terms up in a fixed order. The loops release
Python's lock, so that threads of one process run them side by side.

Feature values are users too: a value is a user who has all of its items.

Shape suffixes: U users, I items of the catalogue, N entries of histories, W places of the window,
T popular pairs, t items of a chunk, K neighbours of an item, V feature values.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush, heapreplace
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Entries(NamedTuple):
    """Histories by user and by item."""

    offset_U: NDArray[np.int64]
    """The first entry of each user, and the end of the last user's: [U + 1]."""
    item_N: NDArray[np.int32]
    """Items, oldest first within a user."""
    value_N: NDArray[np.float64]
    """Weights of the entries."""
    weight_U: NDArray[np.float64]
    """Weights of the users in X'X."""
    first_I: NDArray[np.int64]
    """The first place of each item in the next two fields, and the end: [I + 1]."""
    entry_N: NDArray[np.int64]
    user_N: NDArray[np.int32]
    decay_W: NDArray[np.float64]
    """Weight in a source of the item that lies d places back; empty without an order."""
    product_WW: NDArray[np.float64]
    """At [D, m] the sum of ``decay[d] * decay[d + D]`` over d from 0 to m."""


class PopularPairs(NamedTuple):
    """G of the pairs of the ``num_popular`` items with the most users."""

    rank_I: NDArray[np.int32]
    """Rank of each item, 0 for the one with the most users."""
    item_I: NDArray[np.int64]
    """The item of each rank."""
    num_popular: int
    gram_T: NDArray[np.float64]
    """The lower triangle by rank, row by row."""


class Strength(NamedTuple):
    """A pair is as strong as ``A[other, item] / (of_other[other] * of_item[item] + shrinkage)``."""

    of_other_I: NDArray[np.float64]
    of_item_I: NDArray[np.float64]
    shrinkage: float


def _compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a loop at its first call; later processes read the compiled loop from a cache."""
    plain: Callable[_P, _R] = njit(nogil=True)(function)
    try:
        cached: Callable[_P, _R] = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # Numba found no writable folder
        return plain

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return cached(*args, **kwargs)
        except OSError:  # a full disk, before the loop has begun
            return plain(*args, **kwargs)

    return call


def _inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a part of other loops, compiled with each of them."""
    compiled: Callable[_P, _R] = njit(nogil=True)(function)
    return compiled


@_inner
def _add_pairs(
    entries: Entries,
    item: int,
    table: int,
    num_met: int,
    sum_4I: NDArray[np.float64],
    stamp_I: NDArray[np.int32],
    met_I: NDArray[np.int32],
) -> int:
    """Count the pairs of ``item`` with the items of its users, ``item`` itself among them.

    Adds a column of X'X to row ``table`` of ``sum_4I``, columns of S'S and S'T to rows 1 and 2.
    ``met_I`` gets the items that have a sum, after the first ``num_met`` of them; returns their
    number.
    """
    item_N, value_N, decay_W = entries.item_N, entries.value_N, entries.decay_W
    window = len(decay_W)
    for n in range(entries.first_I[item], entries.first_I[item + 1]):
        entry, user = entries.entry_N[n], entries.user_N[n]
        first, end = entries.offset_U[user], entries.offset_U[user + 1]
        weight = entries.weight_U[user]
        for other_entry in range(first, end):
            other = item_N[other_entry]
            if stamp_I[other] != item:
                stamp_I[other] = item
                sum_4I[:, other] = 0.0
                met_I[num_met] = other
                num_met += 1
            sum_4I[table, other] += weight * (value_N[entry] * value_N[other_entry])
        for other_entry in range(max(first, entry - window), entry):
            # The source of the step to `entry` has this item `entry - other_entry - 1` places back.
            sum_4I[2, item_N[other_entry]] += decay_W[entry - other_entry - 1]
        for other_entry in range(max(first, entry - window + 1), min(end, entry + window)):
            last = _last_product(end, window, entry, other_entry)
            if last >= 0:
                product = entries.product_WW[abs(entry - other_entry), last]
                sum_4I[1, item_N[other_entry]] += product
    return num_met


@_inner
def _last_product(end: int, window: int, entry: int, other_entry: int) -> int:
    """Return the column of `Entries.product_WW` that has the sum over all sources of both entries.

    Below 0 if no source has both. (The loops hand no tuple to it: that would count references.)
    """
    # The newest entry, `end - 1`, is in no source. In the last source, the newer one of both lies
    # `end - 2 - newer` places back; the older one must lie in the window.
    return min(end - 2 - max(entry, other_entry), window - 1 - abs(entry - other_entry))


@_compiled
def count_rows(entries: Entries, start: int, row_3tI: NDArray[np.float64]) -> None:
    """Add X'X, and with an order S'S and T'S, to rows of consecutive items from ``start``."""
    num_items = len(entries.first_I) - 1
    sum_3I, stamp_I = np.empty((3, num_items)), np.full(num_items, -1, np.int32)
    met_I = np.empty(num_items, np.int32)
    for t in range(row_3tI.shape[1]):
        for n in range(_add_pairs(entries, start + t, 0, 0, sum_3I, stamp_I, met_I)):
            for table in range(len(row_3tI)):
                row_3tI[table, t, met_I[n]] += sum_3I[table, met_I[n]]


@_compiled
def find_strongest(
    entries: Entries,
    features: Entries,
    start: int,
    strength: Strength,
    popular: PopularPairs,
    keeps_sums: bool,
    other_tK: NDArray[np.int32],
    value_tK: NDArray[np.float32],
) -> None:
    """Find the strongest others of the items from ``start`` on; of equal ones the first.

    Only others with ``A[other, item] > 0`` count, features included, and only items that somebody
    has. An item that nobody has gets the others that share the most feature weight; if weights
    are equal, the others with the most users come first. ``value_tK`` gets the strength of the
    others, or A without features if ``keeps_sums``. Missing others stay as they are. Pairs of
    popular items are written down.
    """
    first_I, rank_I, num_items = entries.first_I, popular.rank_I, len(popular.rank_I)
    sum_4I, stamp_I = np.empty((4, num_items)), np.full(num_items, -1, np.int32)
    met_I = np.empty(num_items, np.int32)
    heap = [np.int64(0)]  # its element tells Numba the type; the least key comes first
    heap.clear()
    for t in range(len(other_tK)):
        item, row = start + t, rank_I[start + t]
        is_new = first_I[item] == first_I[item + 1]
        num_met = _add_pairs(entries, item, 0, 0, sum_4I, stamp_I, met_I)
        for other in met_I[:num_met]:
            column = rank_I[other]
            if column <= row < popular.num_popular:
                gram = sum_4I[0, other] + sum_4I[1, other]
                popular.gram_T[row * (row + 1) // 2 + column] = gram
        num_met = _add_pairs(features, item, 3, num_met, sum_4I, stamp_I, met_I)
        for other in met_I[:num_met]:
            shared = sum_4I[0, other] + sum_4I[2, other] + sum_4I[3, other]
            if other != item and shared > 0.0 and first_I[other] < first_I[other + 1]:
                scale, tie = strength.of_other_I[other] * strength.of_item_I[item], other
                if is_new:
                    scale, tie = 1.0, rank_I[other]
                # As float32, strengths that differ by the order of a sum are equal. The bits of
                # numbers above zero have the order of the numbers; the lower half of a key prefers
                # low item numbers.
                bits = np.float32(shared / (scale + strength.shrinkage)).view(np.int32)
                key = (np.int64(bits) << 32) + (num_items - 1 - tie)
                if len(heap) < other_tK.shape[1]:
                    heappush(heap, key)
                elif key > heap[0]:
                    heapreplace(heap, key)
        for k, key in enumerate(heap):
            tie = num_items - 1 - (key & 0xFFFFFFFF)
            other_tK[t, k] = other = popular.item_I[tie] if is_new else tie
            value_tK[t, k] = np.int32(key >> 32).view(np.float32)
            if keeps_sums:
                value_tK[t, k] = sum_4I[0, other] + sum_4I[2, other]
        heap.clear()


@_compiled
def fill_systems(
    entries: Entries,
    popular: PopularPairs,
    other_tK: NDArray[np.int32],
    system_tKK: NDArray[np.float64],
) -> None:
    """Fill the upper triangles of G over the others of each item; all are zero before.

    Others are sorted by rank, and -1 stands last, for those that are missing.
    """
    item_N, value_N, window = entries.item_N, entries.value_N, len(entries.decay_W)
    place_I = np.full(len(entries.first_I) - 1, -1, np.int32)
    for t in range(len(other_tK)):
        other_K = other_tK[t]
        num_others = 0
        while num_others < len(other_K) and other_K[num_others] >= 0:
            place_I[other_K[num_others]] = num_others
            num_others += 1
        for k in range(num_others):
            row = popular.rank_I[other_K[k]]
            if row < popular.num_popular:
                for place in range(k + 1):
                    column = popular.rank_I[other_K[place]]
                    system_tKK[t, place, k] = popular.gram_T[row * (row + 1) // 2 + column]
                continue
            # Rare items have few users, whose histories are read again.
            for n in range(entries.first_I[other_K[k]], entries.first_I[other_K[k] + 1]):
                entry, user = entries.entry_N[n], entries.user_N[n]
                first, end = entries.offset_U[user], entries.offset_U[user + 1]
                weight = entries.weight_U[user]
                for other_entry in range(first, end):
                    place = place_I[item_N[other_entry]]
                    if 0 <= place <= k:
                        gram = weight * (value_N[entry] * value_N[other_entry])
                        last = _last_product(end, window, entry, other_entry)
                        if last >= 0:
                            gram += entries.product_WW[abs(entry - other_entry), last]
                        system_tKK[t, place, k] += gram
        for k in range(num_others):
            place_I[other_K[k]] = -1


@_compiled
def add_features(
    features: Entries,
    item_t: NDArray[np.int64],
    other_tK: NDArray[np.int32],
    system_tKK: NDArray[np.float64],
    target_tK: NDArray[np.float64],
) -> None:
    """Add the weights of shared feature values: to the upper triangles, and to the targets.

    A value adds its weight to every pair of items that have it, an item with itself too.
    """
    shared_V = np.zeros(len(features.weight_U))
    for t in range(len(item_t)):
        num_others = 0
        while num_others < other_tK.shape[1] and other_tK[t, num_others] >= 0:
            num_others += 1
        for k in range(num_others + 1):
            item = other_tK[t, k] if k < num_others else item_t[t]
            value_n = features.user_N[features.first_I[item] : features.first_I[item + 1]]
            for value in value_n:
                shared_V[value] = features.weight_U[value]
            for place in range(min(k + 1, num_others)):
                other = other_tK[t, place]
                shared = 0.0
                for n in range(features.first_I[other], features.first_I[other + 1]):
                    shared += shared_V[features.user_N[n]]
                if k < num_others:
                    system_tKK[t, place, k] += shared
                else:
                    target_tK[t, place] += shared
            for value in value_n:
                shared_V[value] = 0.0


@_compiled
def group_by_other(
    other_IK: NDArray[np.int32],
    value_IK: NDArray[np.float32],
    first_I: NDArray[np.int64],
    item_M: NDArray[np.int32],
    value_M: NDArray[np.float32],
) -> None:
    """Group pairs by the other item: the items of each one, and values; zeros are left out.

    ``first_I`` [I + 1], zero before, gets where each group begins, then the end.
    """
    for item in range(len(other_IK)):
        for k in range(other_IK.shape[1]):
            first_I[other_IK[item, k] + 1] += value_IK[item, k] != 0.0
    for item in range(len(other_IK)):
        first_I[item + 1] += first_I[item]
    next_I = first_I.copy()
    for item in range(len(other_IK)):
        for k in range(other_IK.shape[1]):
            if value_IK[item, k] != 0.0:
                place = next_I[other_IK[item, k]]
                item_M[place], value_M[place] = item, value_IK[item, k]
                next_I[other_IK[item, k]] += 1
