"""Histories of all users, a part of them at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.errors import RunError
from foretaste.recommend import Recommender, recommender
from foretaste.runs import Run


@pytest.mark.parametrize("users_at_once", [7, 10_000])
def test_histories_in_turn_are_those_of_all_and_read_once(
    popularity: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users_at_once: int
) -> None:
    assert popularity.run is not None
    run = Run(shutil.copytree(popularity.run.path, tmp_path / "run"), popularity.run.config)
    monkeypatch.setattr(recommender, "_USERS_AT_ONCE", users_at_once)
    whole = run.histories  # before the file has other bytes than config.json says
    num_users = len(whole)
    file = run.path / "histories.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=11)
    num_groups, read = pq.ParquetFile(file).num_row_groups, []
    read_row_group = pq.ParquetFile.read_row_group

    def counted(self: pq.ParquetFile, number: int, **options: Any) -> pa.Table:
        read.append(number)
        return read_row_group(self, number, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    in_turn = recommender._InTurn(run)
    for start in range(0, num_users, 5):
        index = np.arange(start, min(start + 5, num_users))
        found, expected = in_turn.rows(index), whole.rows(index)
        np.testing.assert_array_equal(found.offsets, expected.offsets)
        np.testing.assert_array_equal(found.item_index, expected.item_index)
        assert found.num_items == whole.num_items
    if users_at_once >= num_users:
        assert read == list(range(num_groups))
    assert len(read) < 2 * num_groups  # those that end among the pairs of a user are read for both
    file.write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"histories\.parquet: cannot be read"):
        recommender._InTurn(run).rows(np.array([0]))
