"""Lists for many requests at once are those that each would get alone."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from foretaste.recommend import Answer, Recommender
from foretaste.recommend.inputs import UNKNOWN_USER
from foretaste.recommend.mixed import AskedUser, Listed, ListRequest, answer_requests
from tests.recommend.shop import HISTORIES, new_users, trained_users, unseen_item


def alone(recommender: Recommender, request: ListRequest) -> list[Listed]:
    return answer_requests(recommender, [request])[0]


def check_same(found: Listed, expected: Listed) -> None:
    assert found.item_index == expected.item_index
    assert found.scores == pytest.approx(expected.scores, rel=1e-5, abs=1e-5)
    assert found._replace(scores=()) == expected._replace(scores=())


def check_is(recommender: Recommender, found: Listed, expected: Answer) -> None:
    assert recommender.items.ids(np.array(found.item_index, dtype=int)) == expected.item_ids
    assert found.scores == pytest.approx(expected.scores, rel=1e-5, abs=1e-5)
    assert (found.user_id, found.reason) == (expected.id, expected.reason)


def some_requests(recommender: Recommender) -> list[ListRequest]:
    """Requests of every kind, with repeats, of users known, held out, unknown and new."""
    draw = random.Random(3)
    known, held_out = trained_users(recommender), new_users(recommender)
    users = [
        *(AskedUser(user) for user in (known[0], known[0], held_out[0], known[5], 999_999)),
        AskedUser(None, [1, 5]),
        AskedUser(None, []),
        AskedUser(None, [unseen_item(recommender), 2]),
        AskedUser(known[3], [unseen_item(recommender)]),
        AskedUser(known[4], [1, 2, 3, 4]),
        AskedUser(999_999, [7]),
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
    ]
    return [
        ListRequest(users=draw.sample(users, draw.randrange(4)), **{"k": 1 + number % 13, **filter})
        for number, filter in enumerate(filters * 4)
    ]


def test_a_list_is_that_of_the_request_alone(personal: Recommender) -> None:
    requests = some_requests(personal)
    together = answer_requests(personal, requests)
    for request, lists in zip(requests, together, strict=True):
        assert len(lists) == len(request.users)
        for found, expected in zip(lists, alone(personal, request), strict=True):
            check_same(found, expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 40},
        {"k": 5, "exclude": [0, 1, 2, "nothing"]},
        {"k": 4, "candidates": [2, 4, 6, 8, 10], "exclude": [4]},
        {"include_seen": True},
    ],
)
def test_a_list_is_that_of_recommend(personal: Recommender, options: dict[str, object]) -> None:
    users = [*trained_users(personal)[:3], new_users(personal)[0], 999_999]
    histories = [[1, 5], [], [unseen_item(personal), 2], [unseen_item(personal)]]
    asked = [AskedUser(user) for user in users] + [AskedUser(None, items) for items in histories]
    found = alone(personal, ListRequest(users=asked, **options))
    expected = personal.recommend(users, unknown="popular", **options)
    expected += personal.recommend_for(histories, **options)
    for one, other in zip(found, expected, strict=True):
        check_is(personal, one, other)
    assert [one.is_known for one in found] == [True] * 4 + [False] * 5
    assert [one.is_popularity for one in found] == [False] * 4 + [True, False, True, False, True]


def test_what_a_known_user_has_further_is_folded_in_with_what_the_run_has(
    personal: Recommender,
) -> None:
    user = trained_users(personal)[0]
    further = next(item for item in range(12) if item not in HISTORIES[user])
    (found,) = alone(personal, ListRequest(users=[AskedUser(user, [further])]))
    (expected,) = personal.recommend_for([[*HISTORIES[user], further]])
    check_is(personal, found, replace(expected, id=user))
    assert found.is_known


def test_what_a_known_user_has_already_changes_nothing(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    (found,) = alone(personal, ListRequest(users=[AskedUser(user, [*HISTORIES[user]])]))
    check_is(personal, found, personal.recommend([user])[0])


def test_items_of_a_known_user_that_training_never_saw_are_named(personal: Recommender) -> None:
    user, item = trained_users(personal)[0], unseen_item(personal)
    (found,) = alone(personal, ListRequest(users=[AskedUser(user, [item])], k=1))
    reason = f"1 item of the history ignored, never seen in training: {item}"
    assert (found.reason, found.is_popularity) == (reason, False)


def test_an_unknown_user_with_a_history_is_a_new_one(personal: Recommender) -> None:
    nobody, somebody = alone(
        personal, ListRequest(users=[AskedUser(999_999), AskedUser(999_999, [1, 5])], k=1)
    )
    assert (nobody.reason, nobody.is_popularity) == (UNKNOWN_USER, True)
    assert (somebody.reason, somebody.is_popularity) == (None, False)
    expected = personal.recommend_for({999_999: [1, 5]}, k=1)[0]
    check_is(personal, somebody, expected)


def test_no_requests_and_no_users_have_no_lists(popularity: Recommender) -> None:
    assert answer_requests(popularity, []) == []
    assert answer_requests(popularity, [ListRequest(users=[])]) == [[]]
