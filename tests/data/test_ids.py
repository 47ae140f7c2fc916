from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretaste.data import IdTable
from foretaste.data.ids import as_ids
from foretaste.errors import DatasetError, SettingError
from tests.messages import Named, raises


def test_integer_ids_are_found_by_number_and_by_exact_spelling() -> None:
    table = IdTable.from_ids("user", [7, -3, 42])
    assert table.lookup([42, "42", "-3", "042", "+42", " 42", "x", 8, str(2**80)]).tolist() == [
        2, 2, 1, -1, -1, -1, -1, -1, -1,
    ]  # fmt: skip
    assert table.lookup([np.int32(7), 8]).tolist() == [0, -1]
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


def test_rows_are_rows_of_the_table() -> None:
    table = IdTable.from_ids("item", [5, 6], title=["Five", None])
    assert (table.ids([1]), table.ids([]), table.titles((0, 1))) == ([6], [], ["Five", None])
    for index in ([-1], [2], [0.0], [True], 1):
        with raises(SettingError, 0):
            table.ids(index)  # type: ignore[arg-type]


SOUND = [[3, "a"], (3, "a"), {3: 1}.keys(), pa.array([3]), np.array(3), np.array([3], np.uint8),
         pd.Series([3]), pd.Series([3], dtype="Int64"), pl.Series([3]), torch.tensor([3]),
         [np.int64(3)], pd.Index([3]), iter([3]), np.int32(3), pa.chunked_array([[3]])]  # fmt: skip


@pytest.mark.parametrize("ids", SOUND, ids=lambda ids: type(ids).__name__)
def test_ids_come_in_any_list(ids: Any) -> None:
    found = as_ids("ids", ids)
    assert found in ([3], [3, "a"])
    assert {*map(type, found)} <= {int, str}


NONE = [
    ([1, None], ("None", 1)),
    ([1, float("nan")], ("nan", 1)),
    (pd.Series([1, None], dtype="Int64"), ("<NA>", 1)),
    ([True, 3], ("True", 0)),
    (["a", b"b"], ("b'b'", 1)),
    (np.array([[1]]), ("[1]", 0)),
    (None, ("ids", "None")),
    (1.5, ("ids", 1.5)),
    (2**63, ("ids", 2**63)),
    (pd.DataFrame({"ids": [1]}), ("ids", "frame.reset_index()")),
    (
        pd.Series([7, 7, 8], name="user_id").value_counts(),
        ("count", "user_id"),
    ),
    (pd.DataFrame({"item": [1], "n": [9]}).groupby("item")["n"].sum(), ("n", "item")),
]


@pytest.mark.parametrize(("ids", "named"), NONE)
def test_what_is_no_id_is_named(ids: Any, named: Named) -> None:
    with raises(SettingError, *named):
        as_ids("ids", ids)


def test_integers_of_more_than_64_bits_are_named() -> None:
    table = IdTable.from_ids("item", [3, 4])
    with raises(SettingError, 2**63, 1):
        table.lookup([3, 2**63])
    with raises(SettingError, 2**63, 1):
        IdTable.from_ids("item", [3, 2**63])


def test_a_column_of_ids_may_have_an_index_of_others() -> None:
    frame = pd.DataFrame({"user_id": [1, 2], "item_id": [5, 6]}).set_index("user_id")
    assert as_ids("ids", frame["item_id"]) == [5, 6]


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
    with raises(DatasetError, "items.parquet", re.compile(r"\[Errno 2\].*")):
        IdTable.read(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with raises(DatasetError, "items.parquet"):
        IdTable.read(path)


def test_unknown_text_finds_the_only_id_of_its_unicode_form() -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    assert IdTable.from_ids("item", ["a", composed]).lookup([apart, composed, "e"]).tolist() == [
        1, 1, -1
    ]  # fmt: skip
    assert IdTable.from_ids("item", [composed, apart]).lookup([apart, composed]).tolist() == [1, 0]
    two = IdTable.from_ids("item", ["\u212b", "A\u030a"])
    assert two.lookup(["\u212b", "A\u030a", "\u00c5"]).tolist() == [0, 1, -1]
