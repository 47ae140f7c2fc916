from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretaste.data import Histories
from foretaste.data.synthetic import generate_histories
from foretaste.data.synthetic_config import GenerateConfig

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
    with pytest.raises(AssertionError, match="outside"):
        histories([pair])


@given(pairs_of, pairs_of)
def test_union_is_the_union_of_sets(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    union = histories(left).union(histories(right))
    expected = [a | b for a, b in zip(as_sets(histories(left)), as_sets(histories(right)))]  # noqa: B905
    assert as_sets(union) == expected
    assert union.num_interactions == len(set(left) | set(right))


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
