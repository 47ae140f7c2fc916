"""Rows without a user or an item, such as purchases of guests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.errors import InputError
from tests.data.conftest import PrepareText, WriteFile, refuse

GUESTS = "customer,sku\n7,a\n,a\n7,b\n8,\n9,a\n,\n"
OPTION = (
    r"; foretaste prepare --empty-ids drop \(empty_ids='drop' in Python\) leaves out rows with an "
    "empty id"
)


def guests(users: Any) -> pd.DataFrame:
    return pd.DataFrame({"customer": users, "sku": ["a", "a", "b", None, "a", ""]})


FLOATS = [7.0, np.nan, 7.0, 8.0, 9.0, np.nan]
FRAMES = {
    "floats": guests(FLOATS),
    "small floats": guests(np.array(FLOATS, dtype=np.float32)),
    "integers": guests(pd.array([7, None, 7, 8, 9, None], dtype="Int64")),
    # NaN, not the NULL that pandas would make.
    "NaN": pa.table({"customer": np.array(FLOATS), "sku": ["a", "a", "b", None, "a", ""]}),
}


def test_rows_without_a_user_or_an_item_can_be_left_out(
    prepared: PrepareText, write: WriteFile, tmp_path: Path
) -> None:
    plain = prepared("customer,sku\n7,a\n7,b\n9,a\n", "plain", protocol="none")
    dropped = prepared(GUESTS, protocol="none", empty_ids="drop")
    pq.write_table(pa.Table.from_pandas(FRAMES["floats"]), tmp_path / "guests.parquet")
    lines = write('{"u": 1}\n{"user": 9, "item": "a"}\n{"user": null, "item": 3}\n', "x.jsonl")
    config = PrepareConfig(protocol="none", empty_ids="drop")
    sources = FRAMES | {"parquet": tmp_path / "guests.parquet"}
    made = [prepare(source, tmp_path / name, config) for name, source in sources.items()]
    for dataset in (dropped, *made):
        assert dataset.manifest.digest == plain.manifest.digest
        assert dataset.users.ids() == [7, 9]
        assert dataset.manifest.counts["num_rows_read"] == 6
        assert dataset.manifest.counts["num_rows_with_an_empty_id"] == 3
    few = prepare(lines, tmp_path / "lines", config).manifest.counts
    assert (few["num_rows_read"], few["num_rows_with_an_empty_id"]) == (3, 2)
    assert "num_rows_with_an_empty_id" not in plain.manifest.counts


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (guests(["a", "b", "", None, "c", "d"]),
         r"table, row 2 \(the first is 0\): user_id is empty \(column 'customer', 2 rows like"),
        (FRAMES["integers"][:3], r"table, row 1 \(the first is 0\): user_id is empty"),
        (guests(["7"] * 6), r"table, row 3 \(the first is 0\): item_id is empty"),
        (FRAMES["floats"], r"table, row [13] \(the first is 0\): (user|item)_id is empty"),
    ],
)  # fmt: skip
def test_the_message_names_the_row_and_the_option(source: pd.DataFrame, message: str) -> None:
    refuse(source, f"{message}.*{OPTION}$")


def test_a_line_of_a_file_is_named_with_the_option(prepared: PrepareText) -> None:
    message = rf"out\.csv, line 3: user_id is empty \(column 'customer', 2 rows like it\){OPTION}$"
    with pytest.raises(InputError, match=message):
        prepared("customer,sku\n7,a\n,a\n7,b\n,c\n")


@pytest.mark.parametrize(
    "users",
    [[7.5, None], [2.0**53, None], np.array([2**24], np.float32), np.array([2**11], np.float16)],
)
def test_floats_that_may_not_be_the_id_are_refused(users: Any) -> None:
    frame = pd.DataFrame({"user": users, "item": ["a"] * len(users)})
    message = r"user_id .* is not an id \(column 'user', 1 row"
    refuse(frame, message, protocol="none", empty_ids="drop")


def test_a_file_of_guests_alone_has_nothing_left(prepared: PrepareText) -> None:
    with pytest.raises(InputError, match=r"out\.csv: every row has an empty id"):
        prepared("user,item\n,1\n,2\n", empty_ids="drop")
