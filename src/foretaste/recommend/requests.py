"""Lists of many requests at once, for known users, new users by their history, or both."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from foretaste.data.histories import Histories
from foretaste.errors import UnsupportedError
from foretaste.models.base import RecommenderModel
from foretaste.recommend.config import ListRequest
from foretaste.recommend.rules import ItemRules
from foretaste.recommend.top_k import (
    TopItems,
    UserHistories,
    UserRanker,
    list_reasons,
    nearest_in_history,
)

NUM_REASONS = 3
"""Most items of the history that are named as reasons of a listed item."""


def answer_requests(
    model: RecommenderModel,
    item_rules: ItemRules,
    users: UserHistories,
    requests: Sequence[tuple[int, ListRequest]],
) -> list[TopItems]:
    """Make the lists of several requests, scored together.

    Each pair has a number of users, taken from the front, and the request for their lists.
    Remarks on lists are complete. Each list is the same as for its request alone, up to the
    rounding of scores.
    """
    # Rounding: fp32 products differ in the last bits with the batch size (1, 2, 7 against 1024).
    if len(requests) == 1:
        return _rank_with_one_filter(model, item_rules, users, requests)
    ends = [0, *accumulate(num_users for num_users, _ in requests)]
    alike: dict[Hashable, list[int]] = {}
    for number, (_, request) in enumerate(requests):
        key = request.candidates, request.rules, request.where, request.max_per
        alike.setdefault(key, []).append(number)
    found: dict[int, TopItems] = {}
    for numbers in alike.values():
        rows = np.concatenate([np.arange(ends[number], ends[number + 1]) for number in numbers])
        asked = [requests[number] for number in numbers]
        found.update(
            zip(
                numbers,
                _rank_with_one_filter(model, item_rules, users.rows(rows), asked),
                strict=True,
            )
        )
    return [found[number] for number in range(len(requests))]


def _rank_with_one_filter(
    model: RecommenderModel,
    item_rules: ItemRules,
    users: UserHistories,
    asked: Sequence[tuple[int, ListRequest]],
) -> list[TopItems]:
    """Return the lists of requests with the same candidates, rules and limits."""
    requests = [request for _, request in asked]
    ends = [0, *accumulate(num_users for num_users, _ in asked)]
    first, left_out = requests[0], None  # the histories themselves
    common = replace(first, k=max(request.k for request in requests))
    if all(
        (one.exclude, one.include_seen) == (first.exclude, first.include_seen) for one in requests
    ):
        base = item_rules.filter(common)
        filters = [base] * len(asked)
    else:
        common = replace(common, exclude=(), include_seen=False)
        base = item_rules.filter(common)
        filters = [item_rules.filter(one) if one.exclude else base for one in requests]
        request_index = np.repeat(np.arange(len(asked)), np.diff(ends))
        is_left_out = np.array([not request.include_seen for request in requests])[request_index]
        seen = users.histories if users.left_out is None else users.left_out
        left_out = seen.where(is_left_out[seen.row_index()])
        left_out = _add_excluded(left_out, request_index, [each.excluded for each in filters])
    top = UserRanker(model, base, common).rank(users, left_out)
    lists = []
    for request, each, rows in zip(requests, filters, pairwise(ends), strict=True):
        # Ties have one order, so a shorter list is the beginning of a longer one.
        part = top if len(asked) == 1 else top[slice(*rows)].first(request.k)
        missing = [] if request.include_seen else [_seen(users, rows)]
        missing += [] if base.max_per is None else [f"beyond {base.max_per}"]
        why = " or ".join(missing)
        remarks = list_reasons(part, request.k, each.size, each.contents, each.notes, why)
        because = None
        if request.reasons:
            because = [
                _nearest(model, users.histories, row, part[place : place + 1], remarks[place])
                for place, row in enumerate(range(*rows))
            ]
        lists.append(replace(part, remarks=remarks, because=because))
    return lists


def _seen(users: UserHistories, rows: tuple[int, int]) -> str:
    """Return what the lists of one request leave out; dislikes in other requests change no word."""
    first, end = rows
    known, left_out = users.histories, users.left_out or users.histories
    num_known, num_left_out = (one.offsets[end] - one.offsets[first] for one in (known, left_out))
    return "in the history or disliked" if num_left_out > num_known else "in the history"


def _nearest(
    model: RecommenderModel, histories: Histories, row: int, top: TopItems, remarks: list[str]
) -> TopItems | None:
    """Return the items nearest to each item of a list; if there are none, add to ``remarks``."""
    history = histories[row : row + 1]
    if not top.num_known[0]:
        return None
    try:
        return nearest_in_history(model, history, top.item_index[top.filled()], NUM_REASONS)
    except UnsupportedError as error:
        remarks.append(f"no reasons: {error}")
        return None


def _add_excluded(
    left_out: Histories, request_index: NDArray[np.int64], excluded: Sequence[NDArray[np.int64]]
) -> Histories:
    """Return the items left out of each row, with those that its request excludes."""
    each = [excluded[number] for number in request_index]
    if not any(map(len, each)):
        return left_out
    more = Histories.from_pairs(
        np.repeat(np.arange(len(each)), list(map(len, each))),
        np.concatenate(each),
        num_users=len(each),
        num_items=left_out.num_items,
    )
    return left_out.union(more)
