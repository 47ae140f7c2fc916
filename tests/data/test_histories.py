from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretaste.data import Histories
from foretaste.data.synthetic import generate_histories
from foretaste.data.synthetic_config import GenerateConfig
from tests.messages import raises

pairs_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=25)


def histories(pairs: list[tuple[int, int]], num_users: int = 5, num_items: int = 7) -> Histories:
    users, items = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Histories.from_pairs(users, items, num_users=num_users, num_items=num_items)


def as_sets(rows: Histories) -> list[set[int]]:
    return [set(rows[u : u + 1].item_index.tolist()) for u in range(rows.num_users)]


def test_pairs_are_sorted_and_repeats_count_once() -> None:
    rows = histories([(1, 5), (0, 3), (1, 2), (1, 5)], num_users=3)
    assert rows.offsets.tolist() == [0, 1, 3, 3]
    assert rows.item_index.tolist() == [3, 2, 5]
    assert rows.offsets.dtype == np.int64
    assert rows.item_index.dtype == np.int32
    assert rows.lengths().tolist() == [1, 2, 0]
    assert rows.row_index().tolist() == [0, 1, 1]
    assert (rows.num_users, rows.num_interactions, len(rows)) == (3, 3, 3)


def test_rows_come_in_the_order_asked_for() -> None:
    rows = histories([(0, 3), (1, 2), (1, 5)], num_users=3).rows(np.array([1, 2, 1]))
    assert as_sets(rows) == [{2, 5}, set(), {2, 5}]


def test_consecutive_rows_are_views() -> None:
    whole = histories([(0, 3), (1, 2), (1, 5), (2, 0)], num_users=3)
    rows = whole.rows(np.array([1, 2]))
    assert as_sets(rows) == [{2, 5}, {0}]
    assert np.shares_memory(rows.item_index, whole.item_index)
    assert as_sets(whole.rows(np.zeros(0, dtype=np.int64))) == []


def test_a_slice_holds_consecutive_rows() -> None:
    rows = histories([(0, 3), (1, 2), (1, 5), (2, 0)], num_users=3)[1:3]
    assert rows.offsets.tolist() == [0, 2, 3]
    assert rows.item_index.tolist() == [2, 5, 0]


def test_padding_adds_empty_rows() -> None:
    rows = histories([(0, 3)], num_users=1)
    assert as_sets(rows.padded(3)) == [{3}, set(), set()]
    behind = rows.padded(4, first=2)
    assert as_sets(behind) == [set(), set(), {3}, set()]
    assert behind.lengths().tolist() == [0, 0, 1, 0]


def test_within_drops_items_beyond_the_catalogue() -> None:
    rows = histories([(0, 3), (0, 6), (1, 6)], num_users=2).within(4)
    assert as_sets(rows) == [{3}, set()]
    assert rows.num_items == 4


def test_no_users_and_no_items() -> None:
    rows = histories([], num_users=0, num_items=0)
    assert rows.num_users == 0
    assert rows.union(rows).num_interactions == 0


@pytest.mark.parametrize("pair", [(5, 0), (0, 7), (-1, 0), (0, -1)])
def test_indexes_out_of_bounds_are_our_own_mistake(pair: tuple[int, int]) -> None:
    with raises(AssertionError):
        histories([pair])


@given(pairs_of, pairs_of)
def test_union_is_the_union_of_sets(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    union = histories(left).union(histories(right))
    expected = [a | b for a, b in zip(as_sets(histories(left)), as_sets(histories(right)))]  # noqa: B905
    assert as_sets(union) == expected
    assert union.num_interactions == len(set(left) | set(right))


def ordered(*rows: list[int], num_items: int = 10) -> Histories:
    """Histories of items, given oldest first."""
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    items = np.array([item for row in rows for item in row], dtype=np.int64)
    position = np.arange(len(items))
    return Histories.from_pairs(
        users, items, num_users=len(rows), num_items=num_items, position=position
    )


def in_order(histories: Histories) -> list[list[int]]:
    items = histories.item_index[histories.oldest_first()]
    return [row.tolist() for row in np.split(items, histories.offsets[1:-1])]


def test_an_item_that_comes_twice_has_its_last_place() -> None:
    found = ordered([5, 1, 7, 5], [2, 2])
    assert in_order(found) == [[1, 7, 5], [2]]
    assert found.item_index.tolist() == [1, 5, 7, 2]
    assert found.position is not None
    assert found.position.dtype == np.int32


def test_every_operation_carries_the_order() -> None:
    found = ordered([5, 1, 7], [], [8, 3])
    assert in_order(found[1:3]) == [[], [8, 3]]
    assert in_order(found.rows(np.array([2, 0, 2]))) == [[8, 3], [5, 1, 7], [8, 3]]
    assert in_order(found.padded(5, first=1)) == [[], [5, 1, 7], [], [8, 3], []]
    assert in_order(found.within(6)) == [[5, 1], [], [3]]
    assert in_order(found.within(20)) == [[5, 1, 7], [], [8, 3]]
    assert in_order(found.where(found.item_index != 1)) == [[5, 7], [], [8, 3]]


def test_a_union_has_an_order_only_if_both_have_one() -> None:
    left, right = ordered([5, 1], [3]), ordered([2], [8])
    assert right.position is not None
    moved = replace(right, position=right.position + 7)
    assert in_order(left.union(moved)) == [[5, 1, 2], [3, 8]]
    assert in_order(moved.union(left)) == [[5, 1, 2], [3, 8]]
    unordered = replace(right, position=None)
    assert left.union(unordered).position is None
    assert unordered.union(left).position is None
    assert unordered.followed_by(left).position is None


def test_the_items_of_another_follow_all_items_of_a_row() -> None:
    left = ordered([5, 1, 7], [3], [])
    assert in_order(left.followed_by(ordered([5, 2], [], [4]))) == [[1, 7, 5, 2], [3], [4]]
    # Only one row has high places, and the items after it still come after.
    later = ordered([0] * 8, [6, 3])[1:]
    assert in_order(ordered([3, 9]).followed_by(later)) == [[9, 6, 3]]


@given(pairs_of, pairs_of)
def test_pairs_are_found_where_they_stand(
    pairs: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    position = {pair: n for n, pair in enumerate(sorted(set(pairs)))}
    found = histories(pairs).find(histories(wanted))
    assert found.tolist() == [position.get(pair, -1) for pair in sorted(set(wanted))]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7])
def test_parts_of_the_users_hold_about_as_many_interactions(num_parts: int) -> None:
    found = generate_histories(GenerateConfig(num_users=60, num_items=40, num_interactions=500))
    bounds = found.user_bounds(num_parts)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, 60, num_parts + 1)
    sizes = np.diff(found.offsets[bounds])
    assert abs(sizes - 500 / num_parts).max() <= found.lengths().max()
