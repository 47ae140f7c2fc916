"""Users by their history: known items count, unknown items are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from foretaste.errors import SettingError
from foretaste.recommend import Recommender, to_table
from tests.messages import raises, says
from tests.recommend.shop import popularity_order, unseen_item


def test_a_history_is_answered_without_its_items(personal: Recommender) -> None:
    history = popularity_order(personal)[:3]
    (answer,) = personal.recommend_for([history], k=10_000)
    assert set(answer.item_ids) == set(popularity_order(personal)) - set(history)
    assert answer.id is None
    assert answer.kind == "history"

    (answer,) = personal.recommend_for([history], k=personal.run.num_items, include_seen=True)
    assert set(answer.item_ids) == set(popularity_order(personal))
    assert answer.reason is None


def test_an_empty_history_gets_popularity(personal: Recommender) -> None:
    (answer,) = personal.recommend_for([[]], k=5)
    assert answer.item_ids == popularity_order(personal)[:5]
    says(answer.reason)


def test_a_wholly_unknown_history_gets_popularity_and_is_named(personal: Recommender) -> None:
    unseen = unseen_item(personal)
    (answer,) = personal.recommend_for([["a", unseen]], k=5)
    assert answer.item_ids == popularity_order(personal)[:5]
    says(answer.reason, f"'a', {unseen}", "0, 1, 2")


def test_unknown_items_of_a_history_are_ignored_and_named(personal: Recommender) -> None:
    history, unseen = popularity_order(personal)[:3], unseen_item(personal)
    plain, one, two = personal.recommend_for(
        [history, [*history, "a"], [unseen, *history, "a"]], k=5
    )
    assert plain.reason is None
    assert one.item_ids == two.item_ids == plain.item_ids
    says(one.reason, 1, "a")
    says(two.reason, 2, f"{unseen}, 'a'")


def test_named_histories_are_answered_by_name(personal: Recommender) -> None:
    order = popularity_order(personal)
    named = personal.recommend_for({"ana": order[:2], "ben": order[3:5]}, k=4)
    assert [(answer.id, answer.kind) for answer in named] == [("ana", "user"), ("ben", "user")]
    unnamed = personal.recommend_for([order[:2], order[3:5]], k=4)
    assert [answer.items for answer in named] == [answer.items for answer in unnamed]
    assert to_table(named).column_names[0] == "user_id"


@pytest.mark.parametrize(
    "given", [pa.table({"user_id": [1], "item_id": [5]}), pd.DataFrame({"item_id": [5]}), "5", 5]
)
def test_wrong_histories_get_an_error_with_the_right_form(
    given: Any, popularity: Recommender
) -> None:
    with raises(SettingError, 1, 5, "read_histories"):
        popularity.recommend_for(given)


def test_names_are_ids_of_one_kind(popularity: Recommender) -> None:
    with raises(SettingError, "ana", 7):
        popularity.recommend_for({"ana": [1], 7: [1]})
    (answer,) = popularity.recommend_for({np.int64(7): [1]}, k=1)
    assert answer.id == 7


def test_reasons_add_up(popularity: Recommender) -> None:
    (answer,) = popularity.recommend_for(
        [[]], k=3, candidates=[*popularity_order(popularity)[:1], "new"]
    )
    says(answer.reason, 1, 3, 1, 1, 2, "candidates", "new")


@pytest.mark.parametrize("container", [list, np.array, pd.Series])
def test_one_history_equals_a_list_of_one(personal: Recommender, container: Any) -> None:
    history = popularity_order(personal)[:3]
    assert personal.recommend_for(container(history), k=4) == personal.recommend_for([history], k=4)


@pytest.mark.parametrize("histories", [[[1], 2], {"ana": 2}])
def test_an_id_among_histories_is_refused(popularity: Recommender, histories: list[object]) -> None:
    with raises(SettingError, 2, "[2]"):
        popularity.recommend_for(histories)  # type: ignore[arg-type]
