"""Checks of a dataset's file after the engine has written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data.preparation.writing import content_digest, is_in_order, write_parts
from tests.data.partitions import few_open_files

Columns = dict[str, list[object]]


def in_order(columns: Columns, path: Path, rows_each: int) -> bool:
    pq.write_table(pa.table(columns), path, row_group_size=rows_each)
    return is_in_order(path)


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
def test_unsorted_files_are_found(columns: Columns, rows_each: int, tmp_path: Path) -> None:
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


class ManyFiles:
    """An engine that writes the training part in forty files."""

    def count(self, relation: str) -> int:
        return 40

    def write_train(self, query: str, directory: Path, num_rows: int) -> list[str]:
        (directory / "train").mkdir()
        names = [f"train/part-{user:05d}.parquet" for user in range(40)]
        for user, name in enumerate(names):
            pairs = {"user_index": pa.array([user], pa.int32()), "item_index": [user]}
            pq.write_table(pa.table(pairs), directory / name)
        return names

    def write(self, query: str, path: Path) -> None:
        role = path.stem.removesuffix("s")
        pq.write_table(pa.table({f"{role}_index": [0], f"{role}_id": ["a"]}), path)


def test_files_in_another_order_are_found(tmp_path: Path) -> None:
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for user, file in enumerate(files):
        pq.write_table(pa.table({"user_index": [user], "item_index": [5]}), file)
    assert is_in_order(*files)
    assert not is_in_order(*files[::-1])


def test_a_training_part_may_have_more_files_than_can_be_open(tmp_path: Path) -> None:
    with few_open_files():
        engine = cast(Any, ManyFiles())
        parts, digest = write_parts(engine, tmp_path, "", {"users": "", "items": ""})
    files = sorted((tmp_path / "train").iterdir())
    assert len(parts) == len(files) + 2
    whole = pa.concat_tables(pq.read_table(file) for file in files)
    pq.write_table(whole, tmp_path / "whole.parquet")
    assert digest == content_digest(tmp_path / "whole.parquet")
