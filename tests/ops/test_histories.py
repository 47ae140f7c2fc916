"""Histories as tensors against plain lists."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretaste.ops.histories import HistoryTensors
from tests.ops.cases import histories_of, item_sets


def as_sets(histories: HistoryTensors) -> list[set[int]]:
    ends = histories.offsets.tolist()
    items = histories.item_index.tolist()
    return [set(items[start:stop]) for start, stop in itertools.pairwise(ends)]


@pytest.mark.slow
@given(item_sets())
def test_rows_keep_their_items(case: tuple[list[set[int]], int]) -> None:
    rows, num_items = case
    histories = histories_of(rows, num_items)
    lengths = np.array([len(row) for row in rows])
    assert len(histories) == len(rows)
    assert as_sets(histories) == rows
    assert histories.item_index.dtype == torch.int32
    assert histories.lengths().tolist() == lengths.tolist()
    assert histories.row_index().tolist() == np.repeat(np.arange(len(rows)), lengths).tolist()


@given(item_sets(), st.integers(-10, 10) | st.none(), st.integers(-10, 10) | st.none())
def test_slices_equal_slices_of_a_list(
    case: tuple[list[set[int]], int], start: int | None, stop: int | None
) -> None:
    rows, num_items = case
    part = histories_of(rows, num_items)[start:stop]
    assert as_sets(part) == rows[start:stop]
    assert part.offsets[0] == 0
    assert part.num_items == num_items


@given(item_sets(), st.data())
def test_rows_may_be_taken_in_any_order(
    case: tuple[list[set[int]], int], data: st.DataObject
) -> None:
    rows, num_items = case
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
    for dtype in (torch.int64, torch.int32):
        part = histories_of(rows, num_items).rows(torch.tensor(wanted, dtype=dtype))
        assert as_sets(part) == [rows[row] for row in wanted]


@given(item_sets())
def test_dense_rows_hold_ones(case: tuple[list[set[int]], int]) -> None:
    rows, num_items = case
    expected = [[float(item in row) for item in range(num_items)] for row in rows]
    assert histories_of(rows, num_items).to_dense().tolist() == expected


def test_the_order_moves_with_the_items() -> None:
    offsets, items, position = ([0, 3, 3, 5], [1, 5, 7, 3, 8], [9, 0, 4, 2, 1])
    whole = HistoryTensors.from_numpy(
        np.array(offsets), np.array(items), 10, "cpu", np.array(position)
    )
    assert whole.position is not None
    assert whole.position.dtype == torch.int32
    assert whole.item_index[whole.oldest_first()].tolist() == [5, 7, 1, 8, 3]
    assert whole.places_back().tolist() == [1, 3, 2, 1, 2]
    some = whole.rows(torch.tensor([2, 0]))
    assert some.item_index[some.oldest_first()].tolist() == [8, 3, 5, 7, 1]
    last = whole[1:]
    assert last.item_index[last.oldest_first()].tolist() == [8, 3]
    assert whole.transposed().position is None


@given(item_sets(), st.integers(1, 6))
def test_the_newest_items_of_rows(case: tuple[list[set[int]], int], most: int) -> None:
    rows, num_items = case
    histories = histories_of(rows, num_items)
    by_hash = histories.newest(most)
    assert all(kept <= row for kept, row in zip(as_sets(by_hash), rows, strict=True))
    lengths = [min(len(row), most) for row in rows]
    assert by_hash.lengths().tolist() == lengths
    # The items ascend; the newest have the lowest numbers.
    place = torch.arange(histories.item_index.numel(), dtype=torch.int32).flip(0)
    newest = replace(histories, position=place).newest(most)
    assert as_sets(newest) == [set(sorted(row)[:most]) for row in rows]
    assert newest.position is not None
    assert newest.position.numel() == sum(lengths)
