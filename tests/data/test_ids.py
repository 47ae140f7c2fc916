from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretaste.data import IdTable
from foretaste.errors import DatasetError


def test_integer_ids_are_found_by_number_and_by_exact_spelling() -> None:
    table = IdTable.from_ids("user", [7, -3, 42])
    assert table.lookup([42, "42", "-3", "042", "+42", " 42", "x", 8, 2**80]).tolist() == [
        2, 2, 1, -1, -1, -1, -1, -1, -1,
    ]  # fmt: skip
    assert table.lookup([np.int32(7), True, 7.0]).tolist() == [0, -1, -1]  # type: ignore[list-item]
    assert table.lookup(np.array([42, 7])).tolist() == [2, 0]  # type: ignore[arg-type]
    assert table.is_integer


def test_text_ids_keep_their_zeros() -> None:
    table = IdTable.from_ids("item", ["007", "7", "ä"])
    assert table.lookup(["007", 7, "ä", "x", "07"]).tolist() == [0, 1, 2, -1, -1]
    assert not table.is_integer


def test_an_empty_table_knows_nobody() -> None:
    assert IdTable.from_ids("user", []).lookup([1, "a"]).tolist() == [-1, -1]


def test_ids_columns_and_titles() -> None:
    table = IdTable.from_ids("item", [5, 6], title=["Five", None])
    assert table.ids() == [5, 6]
    assert table.ids(np.array([1, 0, 1])) == [6, 5, 6]
    assert table.titles(np.array([1, 0])) == [None, "Five"]
    assert table.column("title") == ["Five", None]
    assert IdTable.from_ids("item", [5]).titles() is None


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), unique=True),
    )
)
def test_every_id_is_found_where_it_is(ids: list[int] | list[str]) -> None:
    table = IdTable.from_ids("user", ids)
    assert table.ids() == ids
    assert table.lookup(ids).tolist() == list(range(len(ids)))


@pytest.mark.parametrize("ids", [[3, 1], ["b", "a"]])
def test_written_and_read_again(tmp_path: Path, ids: list[int | str]) -> None:
    path = tmp_path / "items.parquet"
    IdTable.from_ids("item", ids, title=["x", "y"]).write(path)
    again = IdTable.read(path)
    assert (again.kind, again.ids(), again.titles()) == ("item", ids, ["x", "y"])
    assert pq.read_schema(path).names == ["item_index", "item_id", "title"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["items.parquet"]


def test_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    with pytest.raises(DatasetError, match=r"items.parquet: cannot be read"):
        IdTable.read(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DatasetError, match=r"items.parquet: expected columns .* found a"):
        IdTable.read(path)
    pq.write_table(pa.table({"item_index": [1, 0], "item_id": [1, 2]}), path)
    with pytest.raises(DatasetError, match="item_index does not count"):
        IdTable.read(path)
