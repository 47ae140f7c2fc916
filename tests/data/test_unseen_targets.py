"""Held-out items that training never saw: kept as misses, or left out and counted."""

from __future__ import annotations

from foretaste.data import Dataset
from foretaste.errors import InputError
from tests.data.conftest import PrepareText
from tests.data.test_protocols import pairs_of
from tests.messages import raises

# Nobody else has the last items of users 1 and 2.
LAST = (
    "user_id,item_id,timestamp\n"
    "1,5,1\n1,6,2\n1,7,3\n1,90,4\n2,5,1\n2,6,2\n2,91,3\n2,7,4\n3,7,1\n3,5,2\n3,6,3\n3,5,4\n"
)


def test_unseen_targets_are_misses(prepared: PrepareText) -> None:
    dataset = prepared(LAST)
    assert pairs_of(dataset, "test") == {(1, 90), (2, 7), (3, 6)}
    assert dataset.manifest.counts["num_test_targets_unseen_in_training"] == 1
    assert "num_test_targets_dropped_as_unseen" not in dataset.manifest.counts


# Every user has an item of their own, so some targets are unseen for any held-out users.
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
    kept = prepared(OWN, "kept", **REFERENCE | {"filters": "none", "min_user_interactions": 5})
    assert num_dropped(kept) == 0
    counts, summary = dropped.manifest.counts, dict(dropped.manifest.summary())
    assert num_dropped(dropped) > 0
    for part in PARTS:
        num_unseen = kept.manifest.counts[f"num_{part}_targets_unseen_in_training"]
        assert counts[f"num_{part}_targets_dropped_as_unseen"] == num_unseen
        assert summary[f"{part} targets dropped as unseen"] == str(num_unseen)
        assert counts[f"num_{part}_users_left_without_target"] == 0
        assert counts[f"num_{part}_targets_unseen_in_training"] == 0
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


def test_the_error_says_how_to_keep_them_if_none_is_left(prepared: PrepareText) -> None:
    text = "user_id,item_id\n" + "".join(f"{n // 5},{n}\n" for n in range(50))
    with raises(InputError, "--filters", "--min-user-interactions", 5):
        prepared(text, **REFERENCE | {"num_heldout_users": 2})
    settings = {"filters": "none", "min_user_interactions": 5, "num_heldout_users": 2}
    kept = prepared(text, **REFERENCE | settings)
    assert kept.manifest.counts["num_validation_targets_unseen_in_training"] == 2
