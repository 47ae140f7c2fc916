"""Held-out items that training never saw: kept as misses, or left out and counted."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from foretaste.data import Dataset, GivenSplit, PrepareConfig, prepare
from foretaste.errors import InputError
from tests.data.conftest import PrepareText
from tests.data.test_protocols import pairs_of

# The last items of users 1 and 2 are nobody else's.
LAST = (
    "user_id,item_id,timestamp\n"
    "1,5,1\n1,6,2\n1,7,3\n1,90,4\n2,5,1\n2,6,2\n2,91,3\n2,7,4\n3,7,1\n3,5,2\n3,6,3\n3,5,4\n"
)


def test_they_are_kept_unless_told_otherwise(prepared: PrepareText) -> None:
    for name, settings in (("auto", {}), ("keep", {"unseen_targets": "keep"})):
        dataset = prepared(LAST, name, **settings)
        assert pairs_of(dataset, "test") == {(1, 90), (2, 7), (3, 6)}
        assert dataset.manifest.counts["num_test_targets_unseen_in_training"] == 1
        assert "num_test_targets_dropped_as_unseen" not in dataset.manifest.counts


def test_drop_leaves_them_out_and_counts_them(prepared: PrepareText) -> None:
    dataset = prepared(LAST, unseen_targets="drop")
    assert pairs_of(dataset, "test") == {(2, 7), (3, 6)}
    assert pairs_of(dataset, "validation") == {(1, 7), (3, 5)}
    assert sorted(dataset.items.ids()) == [5, 6, 7]
    counts, summary = dataset.manifest.counts, dict(dataset.manifest.summary())
    assert pairs_of(dataset, "train") == pairs_of(prepared(LAST, "kept"), "train")
    for split in ("validation", "test"):
        assert counts[f"num_{split}_targets_dropped_as_unseen"] == 1
        assert counts[f"num_{split}_users_left_without_target"] == 1
        assert counts[f"num_{split}_users"] == 2
        assert counts[f"num_{split}_targets_unseen_in_training"] == 0
        assert summary[f"{split} targets dropped as unseen"] == "1"


# Every user has an item of their own, so that some targets are unseen whoever is held out.
OWN = "user_id,item_id\n" + "".join(
    f"{user},{item}\n" for user in range(20) for item in (*range(9), 100 + user)
)
REFERENCE = {"filters": "reference", "protocol": "held-out-users", "num_heldout_users": 5}


def num_dropped(dataset: Dataset) -> int:
    counts = dataset.manifest.counts
    return sum(counts.get(f"num_{part}_targets_dropped_as_unseen", 0) for part in PARTS)


PARTS = ("validation", "test")


def test_reference_filters_drop_them_under_held_out_users(prepared: PrepareText) -> None:
    dropped = prepared(OWN, "dropped", **REFERENCE)
    kept = prepared(OWN, "kept", **REFERENCE | {"unseen_targets": "keep"})
    num_unseen = [kept.manifest.counts[f"num_{part}_targets_unseen_in_training"] for part in PARTS]
    assert num_dropped(dropped) == sum(num_unseen) > 0
    assert num_dropped(kept) == 0
    for part in PARTS:
        catalogue = set(kept.items.ids()[: kept.manifest.num_items])
        expected = {pair for pair in pairs_of(kept, part) if pair[1] in catalogue}
        assert pairs_of(dropped, part) == expected
        assert pairs_of(dropped, f"{part}_history") == pairs_of(kept, f"{part}_history")


def test_other_protocols_and_filters_keep_them(prepared: PrepareText) -> None:
    assert num_dropped(prepared(OWN, "none", **REFERENCE | {"filters": "none"})) == 0
    twenty = "user_id,item_id,time\n" + "".join(
        f"{user},{item},{item}\n" for user in range(3) for item in (*range(20), 100 + user)
    )
    dataset = prepared(twenty, "last", filters="reference")
    assert dataset.manifest.counts["num_test_targets_unseen_in_training"] == 3


def test_where_none_is_left_it_says_how_to_keep_them(prepared: PrepareText) -> None:
    text = "user_id,item_id,time\n1,1,1\n1,2,2\n1,3,3\n2,1,1\n2,4,2\n2,5,3\n"
    message = r"nothing is left of the validation part: training has none .* --unseen-targets keep"
    with pytest.raises(InputError, match=message):
        prepared(text, unseen_targets="drop")


def test_those_of_a_split_brought_along(tmp_path: Path) -> None:
    train = pd.DataFrame({"user_id": [1, 1, 2], "item_id": [10, 11, 10]})
    test = pd.DataFrame({"user_id": [1, 2, 2], "item_id": [12, 11, 12]})
    config = PrepareConfig(unseen_targets="drop")
    dataset = prepare(GivenSplit(train=train, test=test), tmp_path / "out", config)
    assert pairs_of(dataset, "test") == {(2, 11)}
    assert dataset.manifest.counts["num_test_targets_dropped_as_unseen"] == 2
    assert dataset.manifest.counts["num_test_users_left_without_target"] == 1
