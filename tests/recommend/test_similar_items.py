"""Items similar to an item."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from foretaste.errors import UnknownIdError, UnsupportedError
from foretaste.recommend import Recommender, to_table
from tests.recommend.shop import popularity_order, unseen_item


def test_the_item_itself_is_left_out(personal: Recommender) -> None:
    items = popularity_order(personal)
    for item, answer in zip(items, personal.similar_items(items, k=5), strict=True):
        assert answer.id == item
        assert answer.kind == "item"
        assert len(answer.items) == 5
        assert item not in answer.item_ids
        assert answer.reason is None
        assert answer.items[0].title == f"The Book of {answer.item_ids[0]}"


def test_the_file_of_all_has_what_each_answer_has(personal: Recommender, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    export = personal.similar_all(
        tmp_path / "all.parquet", k=4, progress=lambda *counts: calls.append(counts)
    )
    num_items = personal.run.num_items
    assert (export.num_users, export.num_rows) == (num_items, 4 * num_items)
    assert calls[-1] == (num_items, num_items)
    answers = personal.similar_items(personal.run.items.ids()[:num_items], k=4)
    table = pq.read_table(tmp_path / "all.parquet")
    expected = to_table(answers)
    assert table.column_names == expected.column_names
    for name in ("similar_to", "rank", "item_id", "title"):
        assert table.column(name).to_pylist() == expected.column(name).to_pylist()


def test_a_short_list_is_counted(personal: Recommender, tmp_path: Path) -> None:
    export = personal.similar_all(
        tmp_path / "some.jsonl", k=10_000, item_ids=popularity_order(personal)[:2]
    )
    assert (export.num_users, export.num_short_lists) == (2, 2)
    assert export.num_popularity_lists == 0


def test_the_order_is_that_of_the_model(personal: Recommender) -> None:
    ids = personal.run.items.ids()
    similarity_I = personal.model.similarity(torch.tensor([2]))[0]
    expected = sorted(
        (index for index in range(personal.run.num_items) if index != 2),
        key=lambda index: (-float(similarity_I[index]), index),
    )
    (answer,) = personal.similar_items([ids[2]], k=6)
    assert answer.item_ids == [ids[index] for index in expected[:6]]


def test_more_than_there_are_says_so(personal: Recommender) -> None:
    num_others = personal.run.num_items - 1
    (answer,) = personal.similar_items(popularity_order(personal)[:1], k=10_000)
    assert len(answer.items) == num_others
    assert answer.reason == (
        f"only {num_others} of 10000: {num_others} other items in the catalogue"
    )


def test_unknown_items_are_named(personal: Recommender) -> None:
    with pytest.raises(UnknownIdError, match="1 of 2 item ids are unknown to this run: 'a'"):
        personal.similar_items([popularity_order(personal)[0], "a"])
    unseen = unseen_item(personal)
    with pytest.raises(
        UnknownIdError, match=f"1 of 1 items were never seen in training.* {unseen}"
    ):
        personal.similar_items([unseen])


def test_a_model_that_knows_nothing_of_items_refuses(popularity: Recommender) -> None:
    with pytest.raises(UnsupportedError, match="popularity"):
        popularity.similar_items(popularity_order(popularity)[:1])
