"""Histories of new users, read from every source of a preparation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import PairsConfig, read_histories
from foretaste.errors import InputError, SettingError
from tests.data.conftest import WriteFile
from tests.messages import raises

HISTORIES = {1: [3, 30], 2: [5], 10: [4]}
ROWS = "10,4,5.0\n1,30,1.5\n2,5,2.0\n1,3,4.0\n1,30,2.5\n"


@pytest.mark.parametrize(
    ("content", "config"),
    [
        (f"userId,movieId,rating\n{ROWS}", PairsConfig()),
        (ROWS, PairsConfig(columns=("user", "item", "-"))),
        (f"who,what,stars\n{ROWS}", PairsConfig(user_column="who", item_column="what")),
        (
            f"user,item,score\n{ROWS}".replace(",", "::").encode("utf-16"),
            PairsConfig(encoding="utf-16"),
        ),
    ],
)
def test_text_of_any_form(write: WriteFile, content: str | bytes, config: PairsConfig) -> None:
    found = read_histories(write(content), config)
    assert found == HISTORIES
    assert [*found] == sorted(HISTORIES)


def test_frames_files_and_folders(tmp_path: Path) -> None:
    rows = [(user, item) for user, items in HISTORIES.items() for item in items]
    users, items = zip(*rows, strict=True)
    table = pa.table({"item": items, "user": users})
    assert read_histories(table) == HISTORIES
    pq.write_table(table[:2], tmp_path / "a.parquet")
    pq.write_table(table[2:].select(["user", "item"]), tmp_path / "b.parquet")
    assert read_histories(tmp_path) == HISTORIES


def test_one_id_that_is_text_makes_the_column_text(write: WriteFile) -> None:
    found = read_histories(write("user_id,item_id\n7,5\n007,x\n7,05\n"))
    assert found == {"007": ["x"], "7": ["5", "05"]}


def test_two_columns_of_times_and_ratings_are_not_read(write: WriteFile) -> None:
    """Two columns look like times, and nobody can say which one has them."""
    found = read_histories(write("user,item,Date,date,stars,Stars\n1,9,3,4,5,6\n1,2,1,1,5,6\n"))
    assert found == {1: [9, 2]}


def test_items_are_in_the_order_of_times(write: WriteFile) -> None:
    text = "user,item,date\n1,7,2024-05-03\n1,9,2024-05-01\n2,3,2024-05-01\n1,5,2024-05-02\n"
    assert read_histories(write(text)) == {1: [9, 5, 7], 2: [3]}
    again = text + "1,9,2024-05-09\n"
    assert read_histories(write(again)) == {1: [5, 7, 9], 2: [3]}


@pytest.mark.parametrize("time", ["yesterday", ""])
def test_unreadable_times_are_refused_with_advice(write: WriteFile, time: str) -> None:
    with raises(InputError, 2) as refused:
        read_histories(write(f"user,item,date\n1,7,{time}\n1,9,2024-05-01\n"))
    assert "--protocol" not in str(refused.value)


def test_without_times_the_rows_are_the_order(tmp_path: Path) -> None:
    """The order survives several threads, and a folder read file by file."""
    items = np.random.default_rng(3).permutation(300_000)
    table = pa.table({"user": items % 3, "item": items})
    expected = {user: items[items % 3 == user].tolist() for user in range(3)}
    assert read_histories(table) == expected
    pq.write_table(table[:200_000], tmp_path / "a.parquet", row_group_size=10_000)
    pq.write_table(table[200_000:], tmp_path / "b.parquet", row_group_size=10_000)
    assert read_histories(tmp_path) == expected


def test_what_is_wrong_is_named(write: WriteFile, tmp_path: Path) -> None:
    with raises(InputError, "raw.csv", 3, "item_id"):
        read_histories(write("user,item\n1,1\n2,\n"))
    with raises(SettingError, "PairsConfig"):
        read_histories(tmp_path, {"delimiter": ";"})  # type: ignore[arg-type]
    with raises(SettingError):
        read_histories(pa.table({"user": [1], "item": [1]}), PairsConfig(delimiter=";"))


def test_lists_are_read_as_they_stand(write: WriteFile) -> None:
    config = PairsConfig(layout="lists")
    found = read_histories(write("b 7 3 7 5\na 2\n", "histories.txt"), config)
    assert found == {"a": [2], "b": [3, 7, 5]}


def test_columns_and_formats_of_times_may_be_named(write: WriteFile) -> None:
    """The rows decide if no column is named."""
    rows = "1,7,02.01.2024,8:00,9\n1,9,10.12.2023,9:00,10\n1,5,10.12.2023,7:00,8\n"
    file = write(f"user,item,day,clock,turn\n{rows}")
    named = PairsConfig(time_column=("day", "clock"), time_format="%d.%m.%Y %H:%M")
    assert read_histories(file, named) == {1: [5, 9, 7]}
    assert read_histories(file, PairsConfig(time_column="turn")) == {1: [5, 7, 9]}
    assert read_histories(file) == {1: [7, 9, 5]}
    with raises(InputError, "at", "--time-column"):
        read_histories(file, PairsConfig(time_column="at"))
    with raises(SettingError, "time_format", "%Y"):
        read_histories(file, PairsConfig(time_format="%Y"))
