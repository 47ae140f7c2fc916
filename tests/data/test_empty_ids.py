"""Rows without a user or an item, such as purchases of guests."""

from __future__ import annotations

import re
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
from tests.messages import Named, raises

GUESTS = "customer,sku\n7,a\n,a\n7,b\n8,\n9,a\n,\n"
OPTION = ("--empty-ids drop", "empty_ids='drop'")


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
    ("source", "named"),
    [
        (guests(["a", "b", "", None, "c", "d"]),
         (2, 0, "user_id", "customer", 2)),
        (FRAMES["integers"][:3], (1, 0, "user_id")),
        (guests(["7"] * 6), (3, 0, "item_id")),
        (FRAMES["floats"], (re.compile(r"row [13]"), 0, re.compile(r"(user|item)_id .*like it"))),
    ],
)  # fmt: skip
def test_the_message_names_the_row_and_the_option(source: pd.DataFrame, named: Named) -> None:
    refuse(source, *named, *OPTION)


def test_a_line_of_a_file_is_named_with_the_option(prepared: PrepareText) -> None:
    with raises(InputError, "out.csv", 3, "user_id", "customer", 2, *OPTION):
        prepared("customer,sku\n7,a\n,a\n7,b\n,c\n")


@pytest.mark.parametrize(
    "users",
    [[7.5, None], [2.0**53, None], np.array([2**24], np.float32), np.array([2**11], np.float16)],
)
def test_floats_that_may_not_be_the_id_are_refused(users: Any) -> None:
    frame = pd.DataFrame({"user": users, "item": ["a"] * len(users)})
    refuse(frame, "user_id", "user", 1, protocol="none", empty_ids="drop")


def test_a_file_of_guests_alone_has_nothing_left(prepared: PrepareText) -> None:
    with raises(InputError, "out.csv"):
        prepared("user,item\n,1\n,2\n", empty_ids="drop")
