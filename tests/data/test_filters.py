from __future__ import annotations

import pytest

from tests.data.conftest import PrepareText

# User 1 has 20 rows of 19 items, user 2 has 19 of 19, user 3 has 25 of 25.
ACTIVITY = "user_id,item_id,timestamp\n" + "".join(
    f"{user},{n % 19 if user == 1 else n},{1000 + n}\n"
    for user, num_rows in ((1, 20), (2, 19), (3, 25))
    for n in range(num_rows)
)

# Users 1..30 rate items 1..6: item 6 with 3 stars, the others with 4 and 5; user 30 rates one.
RATED = "user_id,item_id,rating\n" + "".join(
    f"{user},{item},{3 if item == 6 else 4 + item % 2}\n"
    for user in range(1, 31)
    for item in range(1, 2 if user == 30 else 7)
)


@pytest.mark.parametrize("protocol", ["leave-one-out", "temporal", "none"])
def test_the_reference_counts_activity_before_it_drops_repeats(
    protocol: str, prepared: PrepareText
) -> None:
    dataset = prepared(ACTIVITY, filters="reference", protocol=protocol)
    assert dataset.users.ids() == [1, 3]
    assert dataset.manifest.filters == {"min_user_interactions": 20}
    assert dataset.manifest.counts["num_rows_of_inactive_users"] == 19
    assert dataset.manifest.counts["num_repeated_pairs"] == 1


@pytest.mark.parametrize(("copies", "num_copies"), [("", None), ("1,1,5\n1,1,6\n2,2,7\n", 3)])
def test_repeats_at_one_time_are_counted(
    prepared: PrepareText, copies: str, num_copies: int | None
) -> None:
    rows = "1,1,5\n1,1,6\n2,1,6\n1,2,5\n1,2,6\n2,2,7\n1,3,8\n1,4,9\n"
    counts = prepared("user_id,item_id,timestamp\n" + copies + rows).manifest.counts
    assert counts.get("num_repeats_at_the_same_time") == num_copies
    assert counts["num_repeated_pairs"] == 2 + (num_copies or 0)
    assert counts["num_interactions"] == 6


def test_the_reference_drops_low_ratings_and_then_short_users(prepared: PrepareText) -> None:
    dataset = prepared(RATED, filters="reference")
    assert dataset.manifest.filters == {"min_rating": 4.0, "min_user_interactions": 5}
    assert sorted(dataset.users.ids()) == list(range(1, 30))
    assert dataset.items.ids() == [1, 2, 3, 4, 5]
    assert dataset.manifest.counts["num_rows_rated_too_low"] == 29
    assert dataset.manifest.counts["num_rows_of_inactive_users"] == 1


def test_the_rating_rule_needs_a_rating_column(prepared: PrepareText) -> None:
    dataset = prepared(RATED.replace("rating", "opinion"), filters="reference")
    assert dataset.manifest.filters == {"min_user_interactions": 5}
    assert dataset.items.ids() == [1, 2, 3, 4, 5, 6]


def test_leave_one_out_has_no_rating_rule(prepared: PrepareText) -> None:
    dataset = prepared(RATED, filters="reference", protocol="leave-one-out",
                       min_user_interactions=5)  # fmt: skip
    assert dataset.manifest.filters == {"min_user_interactions": 5}


def test_given_filters_override_the_reference(prepared: PrepareText) -> None:
    dataset = prepared(RATED, filters="reference", min_rating=5.0, min_user_interactions=3)
    assert dataset.manifest.filters == {"min_rating": 5.0, "min_user_interactions": 3}
    assert dataset.items.ids() == [1, 3, 5]


def test_items_are_counted_by_users_and_before_users(prepared: PrepareText) -> None:
    # Item 7 has many rows, but of one user; user 9 has nothing else.
    text = "user_id,item_id\n1,1\n2,1\n1,2\n2,2\n3,1\n3,2\n9,7\n9,7\n9,7\n9,1\n"
    dataset = prepared(text, min_item_users=2, min_user_interactions=2, protocol="none")
    assert dataset.users.ids() == [1, 2, 3]
    assert dataset.items.ids() == [1, 2]
    assert dataset.manifest.counts["num_rows_of_rare_items"] == 3
    assert dataset.manifest.counts["num_rows_of_inactive_users"] == 1


@pytest.mark.parametrize("protocol", ["leave-one-out", "held-out-users", "temporal", "none"])
def test_nothing_is_dropped_unless_asked(prepared: PrepareText, protocol: str) -> None:
    dataset = prepared(ACTIVITY, protocol=protocol)
    assert dataset.manifest.filters == {}
    assert dataset.manifest.num_users == 3
    assert dataset.all_interactions().num_interactions == 19 + 19 + 25
