"""Items similar to an item."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import foretaste
from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.errors import UnknownIdError, UnsupportedError
from foretaste.recommend import Recommender, to_table
from tests.messages import raises
from tests.recommend.shop import popularity_order, unseen_item


def num_related(recommender: Recommender) -> list[int]:
    """The number of items related to each item of the catalogue."""
    similarity_II = recommender.model.similarity(torch.arange(recommender.model.num_items))
    return [int(count) - 1 for count in (similarity_II.fill_diagonal_(1) > -torch.inf).sum(1)]


def test_the_item_itself_is_left_out(personal: Recommender) -> None:
    items = popularity_order(personal)
    found = num_related(personal)
    for item, answer in zip(items, personal.similar_items(items, k=5), strict=True):
        assert answer.id == item
        assert answer.kind == "item"
        (index,) = personal.items.lookup([item])
        assert len(answer.items) == min(5, found[index])
        assert item not in answer.item_ids
        assert (answer.reason is None) == (found[index] >= 5)
        assert answer.items[0].title == f"The Book of {answer.item_ids[0]}"


def test_the_file_of_all_has_what_each_answer_has(personal: Recommender, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    export = personal.similar_all(
        tmp_path / "all.parquet", k=4, progress=lambda *counts: calls.append(counts)
    )
    num_items = personal.run.num_items
    num_rows = sum(min(4, found) for found in num_related(personal))
    assert (export.num_users, export.num_rows) == (num_items, num_rows)
    assert calls[-1] == (num_items, num_items)
    answers = personal.similar_items(personal.run.items.ids()[:num_items], k=4)
    table = pq.read_table(tmp_path / "all.parquet")
    expected = to_table(answers)
    assert table.column_names == expected.column_names
    for name in ("similar_to", "rank", "item_id", "title"):
        assert table.column(name).to_pylist() == expected.column(name).to_pylist()


def test_the_order_equals_the_models(personal: Recommender) -> None:
    ids = personal.run.items.ids()
    similarity_I = personal.model.similarity(torch.tensor([2]))[0]
    expected = sorted(
        (index for index in range(personal.run.num_items) if index != 2),
        key=lambda index: (-float(similarity_I[index]), index),
    )
    (answer,) = personal.similar_items([ids[2]], k=6)
    assert answer.item_ids == [ids[index] for index in expected[:6]]


def test_a_k_beyond_the_related_items_gives_a_reason(personal: Recommender) -> None:
    num_others = personal.run.num_items - 1
    (item, *_) = popularity_order(personal)
    (index,) = personal.items.lookup([item])
    found = num_related(personal)[index]
    (answer,) = personal.similar_items([item], k=10_000)
    assert len(answer.items) == found
    reason = f"only {found} of 10000: {num_others} other items in the catalogue"
    if found < num_others:
        reason += f", {num_others - found} of them without a relation to it"
    assert answer.reason == reason


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Two users with two items each, and none in common."""
    table = pa.table({"user_id": [1, 1, 2, 2], "item_id": ["a", "b", "c", "d"]})
    directory = tmp_path_factory.mktemp("tiny") / "data"
    return prepare(table, directory, PrepareConfig(protocol="none"))


@pytest.mark.parametrize("model", ["itemknn", "ease", "sparse ease", "blend"])
def test_no_relation_is_not_shown_as_one(tiny: Dataset, model: str, tmp_path: Path) -> None:
    if model == "blend":
        members = [
            foretaste.train(name, tiny, run=tmp_path / name).path
            for name in ("itemknn", "ease", "popularity")
        ]
        run = foretaste.blend(members, weights=[0.4, 0.4, 0.2], run=tmp_path / "run")
    else:
        settings = {"neighbors": 5} if model == "sparse ease" else {}
        run = foretaste.train(model.split()[-1], tiny, run=tmp_path / "run", **settings)
    recommender = Recommender.open(run.path, "cpu")
    (answer,) = recommender.similar_items(["a"])
    assert answer.item_ids == ["b"]
    assert answer.scores[0] > 0
    reason = "only 1 of 10: 3 other items in the catalogue, 2 of them without a relation to it"
    assert answer.reason == reason
    export = recommender.similar_all(tmp_path / "all.csv", k=2)
    assert (export.num_rows, export.num_short_lists) == (4, 4)
    lines = (tmp_path / "all.csv").read_text().splitlines()[1:]
    pairs = {tuple(line.replace('"', "").split(",")[::2][:2]) for line in lines}
    assert pairs == {("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")}


def test_only_new_items_are_looked_for_among_all_weights(
    tiny: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass over all weights took more memory than the training, and most of the time."""
    run = foretaste.train("itemknn", tiny, run=tmp_path / "run")
    recommender = Recommender.open(run.path, "cpu")
    monkeypatch.setattr(type(recommender.model), "weights_towards", None)
    assert recommender.similar_all(tmp_path / "all.parquet", k=2).num_rows == 4


def test_unknown_items_are_named(personal: Recommender) -> None:
    with raises(UnknownIdError, 1, 2, "a"):
        personal.similar_items([popularity_order(personal)[0], "a"])
    with raises(UnknownIdError, "a"):
        personal.similar_items(["a"])
    unseen = unseen_item(personal)
    with raises(UnknownIdError, 1, 1, unseen):
        personal.similar_items([unseen])


def test_a_model_that_knows_nothing_of_items_refuses(popularity: Recommender) -> None:
    with raises(UnsupportedError, "popularity"):
        popularity.similar_items(popularity_order(popularity)[:1])
