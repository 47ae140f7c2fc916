"""Lists of many requests at once, for known users, new users by their history, or both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from foretaste.data.histories import Histories
from foretaste.data.ids import Ids, IdTable, as_ids
from foretaste.errors import UnsupportedError
from foretaste.models.base import RecommenderModel
from foretaste.recommend.item_filter import ItemFilter
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ListRequest:
    """A number of consecutive users, and the options of their lists, as in `Recommender`."""

    num_users: int
    k: int
    exclude: Ids
    candidates: Ids | None
    include_seen: bool
    rules: Sequence[str]
    where: str | None
    max_per: Mapping[str, int] | None
    reasons: bool


def answer_requests(
    model: RecommenderModel,
    items: IdTable,
    item_rules: ItemRules,
    users: UserHistories,
    requests: Sequence[ListRequest],
) -> list[TopItems]:
    """The lists of each request. Requests take the users in turn; all are scored together.

    Remarks on lists are complete. Each list is the same as for its request alone, up to the
    rounding of scores.
    """
    # Rounding: fp32 products differ in the last bits with the batch size (1, 2, 7 against 1024).
    if len(requests) == 1:
        return _of_one_filter(model, items, item_rules, users, requests)
    ends = [0, *accumulate(request.num_users for request in requests)]
    alike: dict[Hashable, list[int]] = {}
    for number, request in enumerate(requests):
        candidates = request.candidates
        if candidates is not None:
            candidates = tuple(as_ids("candidates", candidates))
        limits = frozenset((request.max_per or {}).items())
        key = candidates, frozenset(request.rules), request.where, limits
        alike.setdefault(key, []).append(number)
    found: dict[int, TopItems] = {}
    for numbers in alike.values():
        rows = np.concatenate([np.arange(ends[number], ends[number + 1]) for number in numbers])
        asked = [requests[number] for number in numbers]
        lists = _of_one_filter(model, items, item_rules, users.rows(rows), asked)
        found.update(zip(numbers, lists, strict=True))
    return [found[number] for number in range(len(requests))]


def _of_one_filter(
    model: RecommenderModel,
    items: IdTable,
    item_rules: ItemRules,
    users: UserHistories,
    asked: Sequence[ListRequest],
) -> list[TopItems]:
    """The lists of requests with the same candidates, rules and limits."""
    first = asked[0]
    filter_of = partial(
        ItemFilter.of,
        items,
        model.num_items,
        candidates=first.candidates,
        condition=item_rules.condition(first.rules, first.where),
    )
    max_per = item_rules.max_per(first.max_per)
    ends = [0, *accumulate(request.num_users for request in asked)]
    left_out = None  # the histories themselves
    if all(
        one.exclude == first.exclude and one.include_seen == first.include_seen for one in asked[1:]
    ):
        base = filter_of(exclude=first.exclude)
        filters = [base] * len(asked)
    else:
        base = filter_of(exclude=())
        filters = [filter_of(exclude=one.exclude) if one.exclude else base for one in asked]
        request_index = np.repeat(np.arange(len(asked)), np.diff(ends))
        is_left_out = np.array([not request.include_seen for request in asked])[request_index]
        left_out = users.histories.where(is_left_out[users.histories.row_index()])
        left_out = _with_excluded(left_out, request_index, [each.excluded for each in filters])
    ranker = UserRanker(
        model,
        base,
        k=max(request.k for request in asked),
        include_seen=first.include_seen and left_out is None,
        max_per=max_per,
    )
    top = ranker.rank(users, left_out)
    lists = []
    for request, each, rows in zip(asked, filters, pairwise(ends), strict=True):
        # Ties have one order, so a shorter list is the beginning of a longer one.
        part = top if len(asked) == 1 else top[slice(*rows)].first(request.k)
        missing = [] if request.include_seen else ["in the history"]
        missing += [] if max_per is None else [f"beyond {max_per}"]
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


def _nearest(
    model: RecommenderModel, histories: Histories, row: int, top: TopItems, remarks: list[str]
) -> TopItems | None:
    """The items of one history nearest to each item of one list. If there are none, the reason is
    added to ``remarks``."""
    history = histories[row : row + 1]
    if not top.num_known[0]:
        return None
    try:
        return nearest_in_history(model, history, top.item_index[top.filled()], NUM_REASONS)
    except UnsupportedError as error:
        remarks.append(f"no reasons: {error}")
        return None


def _with_excluded(
    left_out: Histories, request_index: NDArray[np.int64], excluded: Sequence[NDArray[np.int64]]
) -> Histories:
    """The items left out of each row, with those that its request excludes."""
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
