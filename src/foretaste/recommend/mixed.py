"""Lists for many requests at once: for known users, new ones by their history, or both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretaste.data.histories import Histories
from foretaste.data.ids import Id
from foretaste.errors import UnsupportedError
from foretaste.models.base import RecommenderModel
from foretaste.recommend.inputs import (
    EMPTY_HISTORY,
    NOTHING_KNOWN,
    UNKNOWN_USER,
    RequestedHistories,
)
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.recommender import Recommender
from foretaste.recommend.top_k import TopItems, UserRanker, list_reasons, nearest_in_history

NUM_REASONS = 3
"""Items of the history that are named for each item listed."""

Nearest = tuple[Sequence[int], Sequence[float]]
"""Rows of items in the recommender's table, nearest first, and their similarities."""


class AskedUser(NamedTuple):
    """A user to recommend to, by an id, by a history, or by both."""

    user_id: Id | None = None
    history: Sequence[Id] = ()
    """Items of the user, beside those that the run has of the id."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ListRequest:
    """Users to recommend to, and the options of their lists, as `Recommender` has them."""

    users: Sequence[AskedUser]
    k: int = 10
    exclude: Sequence[Id] = ()
    candidates: Sequence[Id] | None = None
    include_seen: bool = False
    reasons: bool = False
    """Name the items of the history that are nearest to each item listed."""


class Listed(NamedTuple):
    """The list of one user, best first."""

    user_id: Id | None
    item_index: Sequence[int]
    """Rows of the items in the recommender's table."""
    scores: Sequence[float]
    """Their scores; only the order within one list means anything."""
    reason: str | None
    """As an `Answer` has it."""
    is_known: bool
    """True where the run knows the id of the user."""
    is_popularity: bool
    """True where nothing is known of the user's taste: the list is in popularity order."""
    because: Sequence[Nearest] | None
    """For each item the nearest of the history; None where not asked for or not known."""


def answer_requests(
    recommender: Recommender, requests: Sequence[ListRequest]
) -> list[list[Listed]]:
    """One list per user of each request, in order, scored together.

    Users that the run does not know, and of whom no history is given, are answered in popularity
    order. Who is known and has further items is folded in with all of them. Each list is the one
    that its request would get alone, up to the rounding of scores.
    """
    users = _Users.of(recommender, [user for request in requests for user in request.users])
    ends = [0, *accumulate(len(request.users) for request in requests)]
    rows = [np.arange(start, end) for start, end in pairwise(ends)]
    alike: dict[tuple[Id, ...] | None, list[int]] = {}
    for number, request in enumerate(requests):
        candidates = None if request.candidates is None else tuple(request.candidates)
        alike.setdefault(candidates, []).append(number)
    found: list[list[Listed]] = [[] for _ in requests]
    for numbers in alike.values():
        asked = [(requests[number], rows[number]) for number in numbers]
        for number, listed in zip(numbers, _of_one_filter(recommender, users, asked), strict=True):
            found[number] = listed
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Users:
    """Users of all requests, row by row, as a model is asked for them."""

    ids: Sequence[Id | None]
    user_index: NDArray[np.int64]
    """That of the model; beyond its users where the history is to be folded in."""
    histories: Histories
    is_known: NDArray[np.bool_]
    remarks: Sequence[Sequence[str]]

    @classmethod
    def of(cls, recommender: Recommender, users: Sequence[AskedUser]) -> _Users:
        """Look users and their items up."""
        ids = [user.user_id for user in users]
        num_all, num_items = len(recommender.users), recommender.model.num_items
        user_index = np.full(len(ids), num_all)
        named = [row for row, user_id in enumerate(ids) if user_id is not None]
        if named:
            index = recommender.users.lookup([user_id for user_id in ids if user_id is not None])
            user_index[named] = np.where(index < 0, num_all, index)
        is_known = user_index < num_all
        histories = recommender.known_histories.rows(user_index)
        num_kept = histories.lengths()
        remarks: Sequence[Sequence[str]] = [()] * len(ids)
        if any(user.history for user in users):
            given = RequestedHistories(None, [list(user.history) for user in users])
            has_others = [
                bool(kept) or not user.history for kept, user in zip(num_kept, users, strict=True)
            ]
            further, remarks = given.known_items(
                recommender.items, num_items, has_others=has_others
            )
            histories = histories.union(further)
        nothing = [
            () if user.history or kept else (_why_nothing(user, known),)
            for user, kept, known in zip(users, num_kept, is_known, strict=True)
        ]
        return cls(
            ids=ids,
            # What is given and known already changes nothing.
            user_index=np.where(
                histories.lengths() > num_kept, recommender.model.num_users, user_index
            ),
            histories=histories,
            is_known=is_known,
            remarks=[(*before, *more) for before, more in zip(nothing, remarks, strict=True)],
        )


def _why_nothing(user: AskedUser, is_known: bool) -> str:
    """The remark on a user of whom there is no history at all."""
    if user.user_id is None:
        return EMPTY_HISTORY
    return NOTHING_KNOWN if is_known else UNKNOWN_USER


def _of_one_filter(
    recommender: Recommender, users: _Users, asked: Sequence[tuple[ListRequest, NDArray[np.int64]]]
) -> list[list[Listed]]:
    """Lists of requests of the same candidates, each with the rows of its users."""
    model, items = recommender.model, recommender.items
    filter_of = partial(ItemFilter.of, items, model.num_items, candidates=asked[0][0].candidates)
    base = filter_of(exclude=())
    filters = [
        filter_of(exclude=request.exclude) if request.exclude else base for request, _ in asked
    ]
    rows = np.concatenate([rows for _, rows in asked])
    request_index = np.repeat(np.arange(len(asked)), [len(rows) for _, rows in asked])
    histories = users.histories.rows(rows)
    left_out = None  # the histories themselves
    if any(request.include_seen or request.exclude for request, _ in asked):
        is_left_out = np.array([not request.include_seen for request, _ in asked])[request_index]
        left_out = histories.where(is_left_out[histories.row_index()])
        left_out = _with_excluded(left_out, request_index, [each.excluded for each in filters])
    k = np.array([request.k for request, _ in asked])
    ranker = UserRanker(model, base, k=int(k.max()), include_seen=False)
    remarks = [users.remarks[row] for row in rows]
    top = ranker.rank(histories, users.user_index[rows], remarks, left_out)
    top = replace(top, length=np.minimum(top.length, k[request_index]))
    ends = np.searchsorted(request_index, np.arange(len(asked) + 1)).tolist()
    parts = list(starmap(slice, pairwise(ends)))
    reasons: list[list[str]] = []
    for (request, _), each, part in zip(asked, filters, parts, strict=True):
        notes = (*each.notes, ranker.lowered) if ranker.lowered else each.notes
        reasons += list_reasons(top[part], request.k, each.size, each.contents, notes)
    because = [
        _nearest(model, histories[place : place + 1], top[place : place + 1], reasons[place])
        if asked[request_index[place]][0].reasons
        else None
        for place in range(len(rows))
    ]
    is_known, is_popularity = users.is_known[rows].tolist(), (top.num_known == 0).tolist()
    lengths, index, scores = top.length.tolist(), top.item_index.tolist(), top.score.tolist()
    listed = [
        Listed(
            user_id=users.ids[row],
            item_index=index[place][:length],
            scores=scores[place][:length],
            reason="; ".join(reasons[place]) or None,
            is_known=is_known[place],
            is_popularity=is_popularity[place],
            because=because[place],
        )
        for place, (row, length) in enumerate(zip(rows.tolist(), lengths, strict=True))
    ]
    return [listed[part] for part in parts]


def _nearest(
    model: RecommenderModel, history: Histories, top: TopItems, remarks: list[str]
) -> Sequence[Nearest] | None:
    """Items of one history nearest to each item of one list; why there are none, to ``remarks``."""
    if not len(history.item_index):
        return None
    item_index = top.item_index[top.filled()]
    try:
        found = nearest_in_history(model, history.item_index, item_index, NUM_REASONS)
    except UnsupportedError as error:
        remarks.append(f"no reasons: {error}")
        return None
    lists = zip(found.item_index.tolist(), found.score.tolist(), found.length, strict=True)
    return [(index[:length], scores[:length]) for index, scores, length in lists]


def _with_excluded(
    left_out: Histories, request_index: NDArray[np.int64], excluded: Sequence[NDArray[np.int64]]
) -> Histories:
    """The items left out of each row, and those that its request excludes."""
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
