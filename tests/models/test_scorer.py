"""Histories in the forms that a scorer reads."""

from __future__ import annotations

import torch

from foretaste.models.scorer import ScorerInputs

NUM_ITEMS = 9


def inputs_of(*histories: list[int]) -> ScorerInputs:
    items = torch.tensor([item for row in histories for item in row], dtype=torch.int64)
    return ScorerInputs(items, torch.tensor([*map(len, histories)]), None, NUM_ITEMS)


def newest(num_places: int, *histories: list[int]) -> list[list[int]]:
    item_index_BT, length_B = inputs_of(*histories).newest(num_places)
    assert item_index_BT.shape == (len(histories), num_places)
    is_pad_BT = torch.arange(num_places) >= length_B[:, None]
    assert not item_index_BT[is_pad_BT].any()  # pads hold a real item
    rows = zip(item_index_BT.tolist(), length_B.tolist(), strict=True)
    return [row[:length] for row, length in rows]


def test_the_newest_items_come_oldest_first() -> None:
    histories = [[3, 1, 8, 2], [], [5], [7, 6]]
    assert newest(3, *histories) == [[1, 8, 2], [], [5], [7, 6]]
    assert newest(6, *histories) == histories
    assert newest(1, *histories) == [[2], [], [5], [6]]


def test_an_item_that_comes_twice_has_its_last_place() -> None:
    assert newest(3, [4, 2, 4, 6], [4, 4], [1, 2, 3, 1, 4]) == [[2, 4, 6], [4], [3, 1, 4]]


def test_an_index_below_zero_counts_from_the_end() -> None:
    assert newest(2, [0, -1], [-2, 7]) == [[0, 8], [7]]


def test_an_empty_history_has_no_items() -> None:
    assert newest(3, []) == [[]]


def test_the_sets_of_items() -> None:
    known_BI = inputs_of([3, 1, 3], [], [-1]).known
    assert [row.nonzero().flatten().tolist() for row in known_BI] == [[1, 3], [], [8]]
    assert known_BI.max() == 1.0
