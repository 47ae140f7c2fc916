"""Scores of given items, and the vectors behind them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import foretaste
from foretaste.errors import UnknownIdError, UnsupportedError
from foretaste.models.registry import build_model, config_class
from foretaste.recommend import Recommender
from tests.messages import raises
from tests.recommend.shop import new_users, popularity_order, trained_users, unseen_item


def test_scores_equal_the_scores_in_lists(personal: Recommender) -> None:
    users = [new_users(personal)[0], *trained_users(personal)[:3]]
    answers = personal.recommend(users, k=10_000, include_seen=True)
    items = popularity_order(personal)
    scores = personal.score(users, items)
    assert scores.dtype == np.float32
    assert scores.shape == (len(users), len(items))
    for row, answer in zip(scores, answers, strict=True):
        listed = dict(zip(answer.item_ids, answer.scores, strict=True))
        np.testing.assert_allclose(row, [listed[item] for item in items], rtol=1e-4, atol=1e-6)


def test_scores_of_histories_equal_the_scores_in_their_lists(personal: Recommender) -> None:
    items = popularity_order(personal)
    histories = {"ana": items[:3], "ben": []}
    scores = personal.score_for(histories, items[3:6])
    for row, answer in zip(scores, personal.recommend_for(histories, k=10_000), strict=True):
        listed = dict(zip(answer.item_ids, answer.scores, strict=True))
        expected = [listed[item] for item in items[3:6]]
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-6)


def test_users_and_items_without_a_score_are_named(personal: Recommender) -> None:
    user, unseen = trained_users(personal)[0], unseen_item(personal)
    with raises(UnknownIdError, 1, 1, unseen) as caught:
        personal.score(user, unseen)
    assert caught.value.ids == (unseen,)
    with raises(UnknownIdError, 7):
        personal.score(7, popularity_order(personal)[0])


def test_vectors_come_by_id_or_all_together(personal: Recommender) -> None:
    if personal.model.name == "ease":
        with raises(UnsupportedError, "ease", "users"):
            personal.user_vectors()
        with raises(UnsupportedError, "ease", "items"):
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


@pytest.mark.parametrize("model", ["ials", "gmf", "sasrec", "vae", "dae", "recvae"])
def test_an_inner_product_of_an_index_is_the_score(model: str) -> None:
    rows = [(user, user * item % 11, item) for user in range(9) for item in range(1, 7)]
    users, items, times = zip(*rows, strict=True)
    table = pa.table({"user_id": users, "item_id": items, "time": times})
    fitted = foretaste.fit(model, table, epochs=2, callback=foretaste.training.Callback())
    ids = fitted.items.ids(np.arange(fitted.model.num_items))
    index = fitted.index_vectors()
    histories = [ids[:2], ids[3:], []]
    found = [(fitted.query_vectors(), fitted.score(fitted.users.ids(), ids))]
    found.append((fitted.query_vectors_for(histories)[:2], fitted.score_for(histories[:2], ids)))
    for queries, scores in found:
        np.testing.assert_allclose(queries @ index.T, scores, rtol=1e-4, atol=1e-5)
    assert not fitted.query_vectors_for(histories)[2].any()
    assert np.array_equal(fitted.index_vectors(ids[1]), index[1:2])


@pytest.mark.parametrize("model", ["ease", "mlp", "neumf", "popularity"])
def test_scores_that_are_no_inner_products_have_no_index(model: str) -> None:
    built = build_model(model, config_class(model)(), 3, 4)
    with raises(UnsupportedError, model):
        built.index_vectors()
