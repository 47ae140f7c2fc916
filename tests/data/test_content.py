"""Checks of a file of a dataset once the engine has written it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data.content import is_in_order

Columns = dict[str, list[object]]


def in_order(columns: Columns, path: Path, rows_each: int) -> bool:
    pq.write_table(pa.table(columns), path, row_group_size=rows_each)
    with pq.ParquetFile(path) as file:
        return is_in_order(file)


@pytest.mark.parametrize("rows_each", [1, 2, 9])
@pytest.mark.parametrize(
    "columns",
    [
        {"user_index": [0, 1, 0], "item_index": [0, 0, 1]},
        {"user_index": [0, 0, 1], "item_index": [2, 1, 0]},
        {"user_index": [0, 0], "item_index": [1, 1]},
        {"user_index": [1, 0], "user_id": ["a", "b"]},
        {"item_index": [0, 2], "item_id": [7, 8]},
        {"item_index": [0, 1, 0, 1], "item_id": [6, 7, 8, 9]},
    ],
)
def test_files_that_came_out_unsorted_are_found(
    columns: Columns, rows_each: int, tmp_path: Path
) -> None:
    assert not in_order(columns, tmp_path / "part.parquet", rows_each)


@pytest.mark.parametrize("rows_each", [1, 2, 9])
@pytest.mark.parametrize(
    "columns",
    [
        {"user_index": [0, 0, 2], "item_index": [1, 4, 0]},
        {"item_index": [0, 1, 2], "item_id": [9, 3, 5]},
        {"user_index": [], "item_index": []},
    ],
)
def test_sorted_files_pass(columns: Columns, rows_each: int, tmp_path: Path) -> None:
    assert in_order(columns, tmp_path / "part.parquet", rows_each)
