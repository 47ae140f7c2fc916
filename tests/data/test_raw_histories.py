"""Histories of new users, read from whatever a preparation reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import PairsConfig, read_histories
from foretaste.errors import InputError, SettingError
from tests.data.conftest import WriteFile

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
    assert found == {"007": ["x"], "7": ["05", "5"]}


def test_times_and_ratings_are_not_looked_for(write: WriteFile) -> None:
    """Two columns that both look like times are nothing that anyone could be asked about."""
    found = read_histories(write("user,item,Date,date,stars,Stars\n1,2,3,4,5,6\n"))
    assert found == {1: [2]}


def test_what_is_wrong_is_named(write: WriteFile, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"raw\.csv, line 3: item_id is empty .*; leave such rows out$"
    ):
        read_histories(write("user,item\n1,1\n2,\n"))
    with pytest.raises(SettingError, match=r"config is .*; it must be PairsConfig\(\.\.\.\)"):
        read_histories(tmp_path, {"delimiter": ";"})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="are for text files"):
        read_histories(pa.table({"user": [1], "item": [1]}), PairsConfig(delimiter=";"))
