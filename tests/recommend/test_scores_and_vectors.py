"""Scores of given items, and the vectors behind them."""

from __future__ import annotations

import numpy as np
import pytest

from foretaste.errors import UnknownIdError, UnsupportedError
from foretaste.recommend import Recommender
from tests.recommend.shop import new_users, popularity_order, trained_users, unseen_item


def test_scores_are_those_of_the_lists(personal: Recommender) -> None:
    users = [new_users(personal)[0], *trained_users(personal)[:3]]
    answers = personal.recommend(users, k=10_000, include_seen=True)
    items = popularity_order(personal)
    scores = personal.score(users, items)
    assert scores.dtype == np.float32
    assert scores.shape == (len(users), len(items))
    for row, answer in zip(scores, answers, strict=True):
        listed = dict(zip(answer.item_ids, answer.scores, strict=True))
        np.testing.assert_allclose(row, [listed[item] for item in items], rtol=1e-4, atol=1e-6)


def test_scores_of_histories_are_those_of_their_lists(personal: Recommender) -> None:
    items = popularity_order(personal)
    histories = {"ana": items[:3], "ben": []}
    scores = personal.score_for(histories, items[3:6])
    for row, answer in zip(scores, personal.recommend_for(histories, k=10_000), strict=True):
        listed = dict(zip(answer.item_ids, answer.scores, strict=True))
        expected = [listed[item] for item in items[3:6]]
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-6)


def test_what_has_no_score_is_named(personal: Recommender) -> None:
    user, unseen = trained_users(personal)[0], unseen_item(personal)
    with pytest.raises(UnknownIdError, match=r"1 of 1 items were never seen .* no score") as caught:
        personal.score(user, unseen)
    assert caught.value.ids == (unseen,)
    with pytest.raises(UnknownIdError, match="user ids are unknown"):
        personal.score(7, popularity_order(personal)[0])


def test_vectors_come_by_id_or_all_together(personal: Recommender) -> None:
    if personal.model.name == "ease":
        with pytest.raises(UnsupportedError, match="ease has no vectors of users"):
            personal.user_vectors()
        with pytest.raises(UnsupportedError, match="ease has no vectors of items"):
            personal.item_vectors()
        return
    users = personal.users.ids()
    vectors = personal.user_vectors()
    assert len(vectors) == len(users)
    some = [users[-1], users[2], users[-1]]
    expected = vectors[[len(users) - 1, 2, len(users) - 1]]
    np.testing.assert_allclose(personal.user_vectors(some), expected, rtol=1e-4, atol=1e-6)
    items = popularity_order(personal)[:2]
    rows = [personal.items.ids().index(item) for item in items]
    assert np.array_equal(personal.item_vectors(items), personal.item_vectors()[rows])
    assert len(personal.item_vectors()) == personal.model.num_items
