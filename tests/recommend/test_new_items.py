"""Items that nobody has touched are in lists of models with features alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foretaste
from foretaste.data import Dataset, prepare
from foretaste.errors import UnknownIdError
from foretaste.export.formats import Format
from foretaste.measure import compare_runs
from foretaste.recommend import Recommender, load
from foretaste.report import report_runs
from foretaste.runs import Run, verify
from foretaste.training import Callback
from foretaste.training.callbacks import TrainingStart
from tests.messages import raises, says

KINDS = ("wine", "cheese", "bread")
NUM_OLD = 21
NEW = {100: "wine", 101: "cheese", 102: "bread"}
SETTINGS = {
    "dense": {"model": "ease", "neighbors": "all"},
    "sparse": {"model": "ease", "neighbors": 6},
    "slist": {"model": "slist", "neighbors": "all"},
    "without": {"model": "itemknn"},
}
OF_FEATURES = {"feature_weight": 30.0, "feature_power": 0.5}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Users of three tastes; each kind has a third of the items. New items are 100 to 102."""
    generator = np.random.default_rng(1)
    pairs = {
        (user, user % 3 + 3 * int(generator.integers(7))) for user in range(60) for _ in range(5)
    }
    user_id, item_id = np.array(sorted(pairs)).T
    order = generator.permutation(len(user_id))
    table = pa.table(
        {"user_id": user_id[order], "item_id": item_id[order], "timestamp": range(len(order))}
    )
    kind = {item: KINDS[item % 3] for item in range(NUM_OLD)} | NEW
    items = pa.table(
        {
            "item_id": [*kind, 103],  # an item without a kind is in no list
            "kind": [*kind.values(), None],
            "title": [f"{name} {item}" for item, name in kind.items()] + ["something"],
        }
    )
    root = tmp_path_factory.mktemp("new")
    return prepare(table, root / "shop", protocol="leave-one-out", items=items, features=["kind"])


@pytest.fixture(scope="module")
def runs(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    root = tmp_path_factory.mktemp("runs")
    made = {}
    for name, settings in SETTINGS.items():
        own = {**settings} if name == "without" else {**settings, **OF_FEATURES}
        made[name] = foretaste.train(
            dataset=dataset, run=root / name, device="cpu", callback=Callback(), **own
        )
    members = [made["dense"], made["without"]]
    made["blend"] = foretaste.blend(
        members, weights=[0.5, 0.5], run=root / "blend", device="cpu", callback=Callback()
    )
    return made


@pytest.fixture(scope="module", params=["dense", "sparse", "slist", "blend"])
def lists_new(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Recommender:
    return load(runs[request.param], "cpu")


@pytest.fixture(scope="module")
def without(runs: dict[str, Run]) -> Recommender:
    return load(runs["without"], "cpu")


def test_a_training_says_who_lists_new_items(dataset: Dataset, tmp_path: Path) -> None:
    heard = []

    class Listening(Callback):
        def started(self, start: TrainingStart) -> None:
            heard.append(start.new_items)

    for name, own in (("popularity", {}), ("ease", OF_FEATURES)):
        foretaste.train(name, dataset, run=tmp_path / name, callback=Listening(), **own)
    assert heard == [
        "3, in no list: popularity does not learn from features",
        "3, listed by their features",
    ]


def test_a_new_item_stands_among_items_of_its_kind(lists_new: Recommender) -> None:
    for taste, item in enumerate(NEW):
        history = [taste, taste + 3, taste + 6]
        (answer,) = lists_new.recommend_for([history], k=5)
        assert item in answer.item_ids
        assert not {*NEW} - {item} & {*answer.item_ids}
        assert answer.titles is not None
        assert f"{NEW[item]} {item}" in answer.titles


def test_every_list_has_the_same_items_in_the_end(
    lists_new: Recommender, without: Recommender
) -> None:
    old = {*range(NUM_OLD)}
    for recommender, listed in ((lists_new, old | {*NEW}), (without, old)):
        (answer,) = recommender.recommend_for([[0, 3]], k=100)
        assert {*answer.item_ids} == listed - {0, 3}
        says(answer.reason, len(listed) - 2, 100, len(listed), 2)


def test_filters_of_new_items(lists_new: Recommender, without: Recommender) -> None:
    given = {"candidates": [100, 101, 5], "exclude": [101]}
    (answer,) = lists_new.recommend([0], k=3, **given)
    assert {*answer.item_ids} <= {100, 5}
    assert 100 in answer.item_ids
    assert "never seen" not in str(answer.reason)
    (answer,) = without.recommend([0], k=3, **given)
    says(answer.reason, 1, 3, 1, 2, 3, "candidates", "100, 101", 1, 1, "exclude", 101)


def test_a_rule_on_new_items(lists_new: Recommender) -> None:
    (answer,) = lists_new.recommend([0], k=30, where="kind = 'bread' AND item_id >= 100")
    assert answer.item_ids == [102]
    (answer,) = lists_new.recommend([1], k=24, max_per={"kind": 1})
    assert len(answer.item_ids) == 3


def test_a_new_item_in_a_history(runs: dict[str, Run], without: Recommender) -> None:
    for name in ("dense", "slist", "blend"):
        (answer,) = load(runs[name], "cpu").recommend_for([[100]], k=3, reasons=True)
        assert {item % 3 for item in answer.item_ids} == {0}, name
        assert 100 not in answer.item_ids
        assert "popularity" not in str(answer.reason)
    # With a few neighbours, a new item has no weight towards another.
    (answer,) = load(runs["sparse"], "cpu").recommend_for([[100]], k=21, reasons=True)
    says(answer.reason)
    by_count = load(runs["sparse"], "cpu").recommend_for([[]], k=21)[0].item_ids
    assert answer.item_ids == by_count
    (answer,) = load(runs["sparse"], "cpu").recommend_for([[100, 1]], k=3)
    assert "popularity" not in str(answer.reason)
    (answer,) = without.recommend_for([[100]], k=3)
    says(answer.reason, 100)


def test_similar_items_of_and_towards_new_ones(
    lists_new: Recommender, without: Recommender
) -> None:
    (of_new,) = lists_new.similar_items([101], k=5)
    assert {item % 3 for item in of_new.item_ids if item < NUM_OLD} == {1}
    assert any(101 in answer.item_ids for answer in lists_new.similar_items([1, 4, 7, 10], k=10))
    with raises(UnknownIdError, 1, 1, 101):
        without.similar_items([101])


def test_all_lists_of_a_file(lists_new: Recommender, tmp_path: Path) -> None:
    lists_new.recommend_all(tmp_path / "all.parquet", k=24)
    table = pq.read_table(tmp_path / "all.parquet")
    assert {*NEW} < {*table["item_id"].to_pylist()} <= {*range(NUM_OLD), *NEW}
    assert "bread 102" in table["title"].to_pylist()


@pytest.mark.parametrize("format", ["onnx", "torch"])
@pytest.mark.parametrize("name", ["dense", "sparse", "slist", "blend"])
def test_a_program_lists_new_items(
    runs: dict[str, Run], name: str, format: Format, tmp_path: Path
) -> None:
    made = foretaste.export_run(runs[name], tmp_path / "out", format=format, k=5)
    assert made.parity.different == 0
    assert made.parity.equal >= 0.9 * made.parity.num_lists
    assert 102 in pq.read_table(tmp_path / "out" / "items.parquet")["item_id"].to_pylist()


def test_runs_are_verified_and_measured_side_by_side(
    runs: dict[str, Run], dataset: Dataset
) -> None:
    for run in runs.values():
        assert verify(run.path) == []
    assert runs["without"].num_items == NUM_OLD
    assert runs["dense"].num_items == runs["blend"].num_items == dataset.manifest.num_listed_items
    assert runs["dense"].config.dataset.feature_columns == ("kind",)
    found = compare_runs([*runs.values()], k=(5,), device="cpu").evaluations
    for label, evaluation in found.items():
        assert (evaluation["new_items@5"] > 0) == (label != "without")
    report = report_runs([runs["without"], runs["blend"]], device="cpu")
    assert "new_items@20" in report.metrics
    shown = {title for person in report.people for title, _ in person.lists["blend"]}
    assert "wine 100" in shown


def test_another_dataset_is_matched_by_id(runs: dict[str, Run], tmp_path: Path) -> None:
    """The next day people took the new items; the runs know them by their features."""
    rows = [(user, item, step) for user in range(60)
            for step, item in enumerate((user % 3, user % 3 + 3, 100 + user % 3))]  # fmt: skip
    user_id, item_id, timestamp = np.array(rows).T
    table = pa.table({"user_id": user_id, "item_id": item_id, "timestamp": timestamp})
    day = prepare(table, tmp_path / "day", protocol="leave-one-out")
    found = compare_runs([*runs.values()], k=(8,), dataset=day, device="cpu").evaluations
    for label, evaluation in found.items():
        if label == "without":
            assert (evaluation["hr@8"], evaluation.num_unseen_targets) == (0, 60)
        else:
            assert (evaluation.num_unseen_targets, evaluation.num_new_targets) == (0, 60)
            assert evaluation["hr@8"] > 0.5, label
