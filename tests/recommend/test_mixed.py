"""Lists for many requests at once equal the lists of each request alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from foretaste.data.ids import Id
from foretaste.recommend import Answer, Recommender
from foretaste.recommend.answers import make_answers
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import UNKNOWN_USER, AskedUsers
from tests.messages import says
from tests.recommend.shop import HISTORIES, new_users, trained_users, unseen_item

User = tuple[Id | None, list[Id] | None]


class Asked(NamedTuple):
    """A request: users, each an id, a history or both, and the options of their lists."""

    users: Sequence[User]
    options: dict[str, Any]


def together(recommender: Recommender, asked: Sequence[Asked]) -> list[list[Answer]]:
    """The answers to each request, all scored at once."""
    users = [user for one in asked for user in one.users]
    ids, histories = [user_id for user_id, _ in users], [history for _, history in users]
    requests = [(len(one.users), ListRequest.of(**one.options)) for one in asked]
    found = recommender.lists_together(
        AskedUsers.mixed(recommender.users, ids, histories), requests
    )
    return [
        make_answers("user", [user_id for user_id, _ in one.users], top, recommender.items)
        for one, top in zip(asked, found, strict=True)
    ]


def alone(recommender: Recommender, users: Sequence[User], **options: object) -> list[Answer]:
    return together(recommender, [Asked(users, options)])[0]


def check_same(found: Answer, expected: Answer) -> None:
    assert found.scores == pytest.approx(expected.scores, rel=1e-5, abs=1e-5)
    assert replace(found, scores=[], kind="user") == replace(expected, scores=[], kind="user")


def some_requests(recommender: Recommender) -> list[Asked]:
    """Requests of every kind, with repeats, of users known, held out, unknown and new."""
    draw = random.Random(3)
    known, held_out = trained_users(recommender), new_users(recommender)
    users: list[User] = [
        *((user, None) for user in (known[0], known[0], held_out[0], known[5], 999_999)),
        (None, [1, 5]),
        (None, []),
        (None, [unseen_item(recommender), 2]),
        (known[3], [unseen_item(recommender)]),
        (known[4], [1, 2, 3, 4]),
        (999_999, [7]),
    ]
    filters = [
        {},
        {"exclude": [0, 1, 2]},
        {"exclude": [3]},
        {"include_seen": True},
        {"include_seen": True, "exclude": [0, "nothing"]},
        {"candidates": [2, 4, 6, 8]},
        {"candidates": [2, 4, 6, 8], "exclude": [4]},
        {"candidates": [], "k": 2},
        {"where": "item_id % 3 <> 0"},
        {"where": "item_id % 3 <> 0", "exclude": [4]},
        {"max_per": {"title": 1}, "candidates": [2, 4, 6, 8]},
    ]
    return [
        Asked(draw.sample(users, draw.randrange(4)), {"k": 1 + number % 13, **filter})
        for number, filter in enumerate(filters * 4)
    ]


def test_a_list_equals_the_list_of_the_request_alone(personal: Recommender) -> None:
    asked = some_requests(personal)
    for one, lists in zip(asked, together(personal, asked), strict=True):
        assert len(lists) == len(one.users)
        for found, expected in zip(lists, alone(personal, one.users, **one.options), strict=True):
            check_same(found, expected)


def test_a_list_equals_recommend(personal: Recommender) -> None:
    users = [*trained_users(personal)[:3], new_users(personal)[0], 999_999]
    histories = [[1, 5], [], [unseen_item(personal), 2], [unseen_item(personal)]]
    asked: list[User] = [(user, None) for user in users] + [(None, items) for items in histories]
    options: dict[str, Any] = {"k": 4, "candidates": [2, 4, 6, 8, 10], "exclude": [4]}
    found = alone(personal, asked, **options)
    expected = personal.recommend(users, unknown="popular", **options)
    expected += personal.recommend_for(histories, **options)
    for one, other in zip(found, expected, strict=True):
        check_same(one, other)


def test_new_items_of_a_known_user_are_folded_in_with_the_runs(
    personal: Recommender,
) -> None:
    user = trained_users(personal)[0]
    further = next(item for item in range(12) if item not in HISTORIES[user])
    (found,) = alone(personal, [(user, [further])])
    (expected,) = personal.recommend_for([[*HISTORIES[user], further]])
    check_same(found, replace(expected, id=user))


def test_items_that_a_known_user_has_change_nothing(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    (found,) = alone(personal, [(user, [*HISTORIES[user]])])
    check_same(found, personal.recommend([user])[0])


def test_an_unknown_user_with_a_history_is_a_new_one(personal: Recommender) -> None:
    nobody, somebody = alone(personal, [(999_999, None), (999_999, [1, 5])], k=1)
    assert (nobody.reason, somebody.reason) == (UNKNOWN_USER, None)
    check_same(somebody, personal.recommend_for({999_999: [1, 5]}, k=1)[0])


def test_reasons_are_the_nearest_of_the_history(personal: Recommender) -> None:
    history = [1, 5]
    (plain,) = personal.recommend_for([history], k=4)
    (found,) = personal.recommend_for([history], k=4, reasons=True)
    assert plain.because is None
    assert found.because is not None
    assert replace(found, because=None) == plain
    nearest = dict(enumerate(found.item_ids))
    similar = personal.similar_items(history, k=personal.model.num_items)
    for place, reasons in enumerate(found.because):
        scores = {
            answer.id: dict(zip(answer.item_ids, answer.scores, strict=True)).get(nearest[place], 0)
            for answer in similar
        }
        expected = sorted((i for i in history if scores[i] > 0), key=lambda i: -scores[i])
        assert [one.item_id for one in reasons] == expected
        assert [one.score for one in reasons] == pytest.approx([scores[i] for i in expected])
    (empty,) = personal.recommend_for([[]], k=2, reasons=True)
    assert empty.because is None


def test_a_model_that_compares_no_items_has_no_reasons(popularity: Recommender) -> None:
    (answer,) = popularity.recommend(trained_users(popularity)[:1], k=2, reasons=True)
    assert answer.because is None
    says(answer.reason, "popularity")
