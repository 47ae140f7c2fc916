"""What is checked of a file of a dataset once the engine has written it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from foretaste.data.writing import _check_order


@pytest.mark.parametrize(
    "columns",
    [
        {"user_index": [0, 1, 0], "item_index": [0, 0, 1]},
        {"user_index": [0, 0, 1], "item_index": [2, 1, 0]},
        {"user_index": [0, 0], "item_index": [1, 1]},
        {"user_index": [1, 0], "user_id": ["a", "b"]},
        {"item_index": [0, 2], "item_id": [7, 8]},
    ],
)
def test_files_that_came_out_unsorted_are_not_kept(columns: dict[str, list[object]]) -> None:
    with pytest.raises(AssertionError, match=r"part\.parquet came out unsorted"):
        _check_order(pa.table(columns), Path("part.parquet"))


def test_sorted_files_pass() -> None:
    pairs = {"user_index": [0, 0, 2], "item_index": [1, 4, 0]}
    _check_order(pa.table(pairs), Path("train.parquet"))
    _check_order(pa.table({"item_index": [0, 1], "item_id": [9, 3]}), Path("items.parquet"))
