"""Given splits are kept unchanged; impossible ones are named."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from foretaste.data import Dataset, GivenSplit, PrepareConfig, open_or_prepare, prepare
from foretaste.data.dataset import Split
from foretaste.data.request import PrepareRequest
from foretaste.errors import ForetasteError, InputError, SettingError
from tests.data.conftest import WriteFile, refuse
from tests.data.test_protocols import pairs_of
from tests.messages import Named, raises


def frame(*pairs: tuple[int, int], rating: float = 5.0) -> pd.DataFrame:
    users, items = zip(*pairs, strict=True)
    return pd.DataFrame({"user": users, "item": items, "rating": rating})


TRAIN = frame((1, 10), (1, 11), (2, 10), (2, 12), (3, 13))


def test_given_parts_are_kept(tmp_path: Path) -> None:
    split = GivenSplit(train=TRAIN, validation=frame((1, 12)), test=frame((1, 13), (2, 11)))
    dataset = prepare(split, tmp_path / "out")
    manifest = dataset.manifest
    assert (manifest.protocol, manifest.validation) == ("given", "hold-out")
    assert pairs_of(dataset, "train") == {(1, 10), (1, 11), (2, 10), (2, 12), (3, 13)}
    assert pairs_of(dataset, "validation") == {(1, 12)}
    assert pairs_of(dataset, "test") == {(1, 13), (2, 11)}
    assert pairs_of(dataset, "test_known") == {(1, 10), (1, 11), (1, 12), (2, 10), (2, 12)}
    assert manifest.columns == {"user_id": "user", "item_id": "item"}
    assert [entry["holds"] for entry in manifest.source] == ["train", "validation", "test"]


@pytest.mark.parametrize(
    ("part", "other", "validation"),
    [("validation", "test", "hold-out"), ("test", "validation", "none")],
)
def test_one_held_out_part(tmp_path: Path, part: str, other: Split, validation: str) -> None:
    dataset = prepare(GivenSplit(train=TRAIN, **{part: frame((1, 12))}), tmp_path / "out")
    assert not dataset.has_split(other)
    assert dataset.manifest.validation == validation


def test_a_pair_belongs_to_the_first_part_that_has_it(tmp_path: Path) -> None:
    split = GivenSplit(
        train=TRAIN,
        validation=frame((1, 12), (1, 10)),
        test=frame((1, 12), (1, 10), (1, 13), (1, 13)),
    )
    dataset = prepare(split, tmp_path / "out")
    assert pairs_of(dataset, "validation") == {(1, 12)}
    assert pairs_of(dataset, "test") == {(1, 13)}
    counts = dataset.manifest.counts
    assert counts["num_validation_pairs_in_an_earlier_part"] == 1
    assert counts["num_test_pairs_in_an_earlier_part"] == 2
    assert counts["num_repeated_pairs"] == 4
    assert counts["num_interactions"] == 7


def test_users_and_items_that_training_never_saw(tmp_path: Path) -> None:
    test = frame((0, 10), (1, 9), (1, 12))
    dataset = prepare(GivenSplit(train=TRAIN, test=test), tmp_path / "out")
    assert dataset.users.ids() == [1, 2, 3, 0]
    assert dataset.items.ids() == [10, 11, 12, 13, 9]
    assert (dataset.manifest.num_train_users, dataset.manifest.num_items) == (3, 4)
    heldout = dataset.heldout("test")
    assert heldout.user_index.tolist() == [0, 3]
    assert heldout.history.lengths().tolist() == [2, 0]
    counts = dataset.manifest.counts
    assert counts["num_test_users_without_history"] == 1
    assert counts["num_test_targets_unseen_in_training"] == 1


FOLDED = {
    "train": TRAIN,
    "validation_fold_in": frame((7, 10), (7, 11)),
    "validation": frame((7, 12), (7, 10)),
    "test_fold_in": frame((8, 11), (9, 12)),
    "test": frame((8, 12), (6, 10)),
}


def test_new_users_are_known_by_their_fold_in_items(tmp_path: Path) -> None:
    dataset = prepare(GivenSplit(**FOLDED), tmp_path / "out")
    assert set(dataset.manifest.parts) == {
        *("train.parquet", "users.parquet", "items.parquet"),
        *("validation_fold_in.parquet", "validation_target.parquet"),
        *("test_fold_in.parquet", "test_target.parquet"),
    }
    assert pairs_of(dataset, "validation_history") == {(7, 10), (7, 11)}
    assert pairs_of(dataset, "validation") == {(7, 12)}
    assert pairs_of(dataset, "test_history") == {(8, 11)}
    assert pairs_of(dataset, "test") == {(6, 10), (8, 12)}
    counts = dataset.manifest.counts
    assert counts["num_test_users_without_history"] == 1
    assert counts["num_test_users_without_target"] == 1
    assert counts["num_validation_target_pairs_in_an_earlier_part"] == 1


@pytest.mark.parametrize(
    ("part", "user"), [("train", 8), ("validation", 8), ("validation_fold_in", 9)]
)
def test_fold_in_users_are_in_no_other_part(part: str, user: int) -> None:
    more = pd.concat([FOLDED[part], frame((user, 13))])
    refuse(GivenSplit(**FOLDED | {part: more}), user)


def test_filters_count_over_all_parts(tmp_path: Path) -> None:
    split = GivenSplit(
        train=pd.concat([TRAIN, frame((2, 13), rating=1)]), test=frame((1, 12), (3, 10))
    )
    config = PrepareConfig(min_rating=2, min_user_interactions=3)
    dataset = prepare(split, tmp_path / "out", config)
    assert pairs_of(dataset, "train") == {(1, 10), (1, 11)}
    assert pairs_of(dataset, "test") == {(1, 12)}


def texts(tmp_path: Path, shuffle: int | None) -> GivenSplit:
    """Files of three parts, rows in some order."""
    chooser = random.Random(1)
    pairs = chooser.sample([(user, item) for user in range(60) for item in range(40)], 900)
    parts = {"train": pairs[:700], "validation": pairs[690:800], "test": pairs[790:]}
    for name, rows in parts.items():
        if shuffle is not None:
            random.Random(shuffle).shuffle(rows)
        lines = "".join(f"{user},i{item}\n" for user, item in rows)
        (tmp_path / f"{name}.csv").write_text("user_id,item_id\n" + lines)
    return GivenSplit(**{name: tmp_path / f"{name}.csv" for name in parts})


def test_row_order_threads_and_memory_change_no_byte(tmp_path: Path) -> None:
    def prepared(name: str, shuffle: int | None, **resources: Any) -> dict[str, bytes]:
        dataset = prepare(texts(tmp_path, shuffle), tmp_path / name, PrepareConfig(**resources))
        return {part: (dataset.path / part).read_bytes() for part in dataset.manifest.parts}

    plain = prepared("plain", None)
    assert prepared("shuffled", 1, threads=1) == plain
    assert prepared("again", 2, threads=4, memory_limit="300MB") == plain


def test_a_split_is_prepared_once(tmp_path: Path) -> None:
    first = open_or_prepare(PrepareRequest.of(texts(tmp_path, None), root=tmp_path))
    assert first.path.name.startswith("train-")
    assert (
        open_or_prepare(PrepareRequest.of(texts(tmp_path, None), root=tmp_path)).path == first.path
    )
    swapped = texts(tmp_path, None)
    swapped = GivenSplit(train=swapped.train, validation=swapped.test, test=swapped.validation)
    assert open_or_prepare(PrepareRequest.of(swapped, root=tmp_path)).path != first.path


def test_parts_in_different_formats(write: WriteFile, tmp_path: Path) -> None:
    split = GivenSplit(
        train=TRAIN,
        validation=pa.table({"item": [12], "user": [1]}),
        test=write("item::x::user\n11::0::2\n", "test.dat"),
    )
    dataset: Dataset = prepare(split, tmp_path / "out")
    assert pairs_of(dataset, "validation") == {(1, 12)}
    assert pairs_of(dataset, "test") == {(2, 11)}


def test_protocol_none_trains_on_every_part(tmp_path: Path) -> None:
    dataset = prepare(GivenSplit(**FOLDED), tmp_path / "out", PrepareConfig(protocol="none"))
    everything = pd.concat(FOLDED.values())
    assert pairs_of(dataset, "train") == set(
        zip(everything["user"], everything["item"], strict=True)
    )
    assert not dataset.has_split("test")
    assert dataset.manifest.protocol == "none"


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"train": None, "test": 1}, ("--train", "GivenSplit")),
        ({"train": 1}, ("--test", "--validation")),
        ({"train": 1, "test": 1, "validation_fold_in": 1},
         ("--validation-fold-in", "--validation")),
        ({"train": 1, "validation": 1, "test_fold_in": 1},
         ("--test-fold-in", "--test")),
        ({"train": 1, "validation": 1, "test_candidates": 1},
         ("--test-candidates",)),
    ],
)  # fmt: skip
def test_given_splits_that_are_incomplete(parts: dict[str, Any], named: Named) -> None:
    with raises(SettingError, *named):
        GivenSplit(**parts)


@pytest.mark.parametrize(
    ("more", "settings", "error", "named"),
    [
        ({}, {"protocol": "temporal"}, SettingError, ("temporal would split",)),
        ({"validation": frame((1, 12))}, {"validation": "none"}, SettingError,
         ("validation", "none")),
        ({"test": frame((1, 10), (1, 11))}, {}, InputError,
         ("nothing is left",)),
        ({"test": pd.DataFrame({"user": [1], "song": [2]})}, {}, InputError,
         ("item", "user", "song")),
    ],
)  # fmt: skip
def test_splits_that_cannot_be_prepared(
    more: dict[str, Any], settings: dict[str, Any], error: type[ForetasteError], named: Named
) -> None:
    split = GivenSplit(**{"train": TRAIN, "test": frame((1, 12))} | more)
    refuse(split, *named, error=error, **settings)
