"""Parquet files and frames of odd types, damaged or malicious: read, or refused with a message."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_targets import attack, parquet_bytes, tables
from foretaste.data import IdTable, PrepareConfig, prepare
from foretaste.errors import InputError
from foretaste.recommend import read_ids
from tests.data.conftest import refuse
from tests.messages import Named, raises

USERS = [user for user in range(5) for _ in range(4)]
ITEMS = list(range(4)) * 5
DAY = datetime.datetime(2020, 1, 1)


def not_utf8() -> pa.Array:
    offsets = pa.py_buffer(np.arange(21, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), 20, [None, offsets, pa.py_buffer(b"\xff" * 20)])


READ_AS_TIMES = {
    "uint64": pa.array([2**64 - 1 - user for user in USERS], pa.uint64()),
    "half": pa.array(np.arange(20, dtype=np.float16)),
    "decimal": pa.array([decimal.Decimal(user) for user in USERS]),
    "decimal256": pa.array([decimal.Decimal(2**130)] * 20, pa.decimal256(60, 2)),
    "zone": pa.array([DAY] * 20, pa.timestamp("us", "Asia/Tokyo")),
    "no such zone": pa.array(USERS, pa.timestamp("us", "No/Where")),
    "date64": pa.array([86_400_000 * user for user in USERS], pa.date64()),
    "dictionary": pa.array([f"{user}" for user in USERS]).dictionary_encode(),
    "view": pa.array([f"{user}" for user in USERS], pa.string_view()),
}
REFUSED_AS_TIMES = {
    "seconds": pa.array([2**62] * 20, pa.timestamp("s")),
    "date32": pa.array([2**31 - 1, -(2**31), *USERS[2:]], pa.date32()),
    "nan": pa.array([float("nan"), float("inf"), *USERS[2:]], pa.float64()),
    "nul": pa.array(["1\0"] * 20),
    "list": pa.array([[user] for user in USERS]),
    "struct": pa.array([{"a": user} for user in USERS]),
    "null": pa.nulls(20),
    "bool": pa.array([True] * 20),
    "binary": pa.array([b"\xff"] * 20),
    "not utf-8": not_utf8(),
}


def sources(table: pa.Table, tmp_path: Path) -> list[Any]:
    """The table, and its file if Parquet has its types."""
    path = tmp_path / "raw.parquet"
    try:
        pq.write_table(table, path)
    except pa.ArrowException:
        return [table]
    return [table, path]


@pytest.mark.parametrize("times", READ_AS_TIMES.values(), ids=READ_AS_TIMES)
def test_types_that_times_come_in(tmp_path: Path, times: pa.Array) -> None:
    table = pa.table({"user": USERS, "item": ITEMS, "time": times})
    for place, source in enumerate(sources(table, tmp_path)):
        prepared = prepare(source, tmp_path / f"out-{place}")
        assert prepared.manifest.protocol == "leave-one-out"
        assert prepared.manifest.num_interactions == 10


@pytest.mark.parametrize("times", REFUSED_AS_TIMES.values(), ids=REFUSED_AS_TIMES)
def test_types_and_values_that_are_no_times(tmp_path: Path, times: pa.Array) -> None:
    table = pa.table({"user": USERS, "item": ITEMS, "time": times})
    for source in sources(table, tmp_path):
        name = "table" if source is table else "raw.parquet"
        refuse(source, re.compile(rf".*{name}.*", re.DOTALL))


@pytest.mark.parametrize(
    "values",
    [*READ_AS_TIMES.values(), *REFUSED_AS_TIMES.values()],
    ids=[*READ_AS_TIMES, *REFUSED_AS_TIMES],
)
def test_items_are_described_by_any_type_or_refused(tmp_path: Path, values: pa.Array) -> None:
    table = pa.table({"user": USERS, "item": ITEMS})
    items = pa.table({"item": list(range(20)), "title": values})
    try:
        prepared = prepare(table, tmp_path / "out", PrepareConfig(protocol="none"), items=items)
    except InputError as error:
        message = str(error)
    else:
        message = None
        assert len(prepared.items.titles() or []) == 4
    assert message is None or (message.startswith("items table: ") and not list(tmp_path.iterdir()))


NAMES = ["", "x" * 100_000, "\u202e", "'", '"', 'x") FROM raw; DROP TABLE raw; --', "item_index",
         "rowid", "filename", "file_row_number"]  # fmt: skip


@pytest.mark.parametrize("as_file", [True, False])
def test_columns_of_any_name(tmp_path: Path, as_file: bool) -> None:
    table = pa.table([USERS, ITEMS, *[ITEMS] * len(NAMES)], names=["user", "item", *NAMES])
    source = sources(table, tmp_path)[as_file]
    items = pa.table([list(range(4))] * (1 + len(NAMES)), names=["item", *NAMES])
    prepared = prepare(source, tmp_path / "out", PrepareConfig(protocol="none"), items=items)
    assert prepared.manifest.num_interactions == 20


def test_a_nul_in_a_column_name(tmp_path: Path) -> None:
    table = pa.table([USERS, ITEMS, ITEMS], names=["user", "item", "a\0b"])
    for place, source in enumerate(sources(table, tmp_path)):
        config = PrepareConfig(protocol="none")
        assert prepare(source, tmp_path / f"out-{place}", config).manifest.num_interactions == 20
        refuse([table], "a\\x00b", items=source)


@pytest.mark.parametrize("kept", [0, 4, 0.5, -1])
def test_parquet_cut_short(tmp_path: Path, kept: float) -> None:
    whole = parquet_bytes(tables()[0])
    cut = whole[: int(len(whole) * kept) if kept == 0.5 else int(kept)]
    (tmp_path / "raw.parquet").write_bytes(cut)
    refuse(tmp_path / "raw.parquet", "raw.parquet", "Parquet", re.compile(".*"))
    with raises(InputError, "raw.parquet", "Parquet", re.compile(".*")):
        read_ids(tmp_path / "raw.parquet", IdTable.from_ids("item", [1]))


SOUND = [parquet_bytes(table) for table in tables()[:3]]


@settings(max_examples=60)
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1),
    st.sampled_from(["parquet", "ids", "items"]),
)
def test_damaged_parquet(whole: bytes, damage: list[tuple[float, int]], target: str) -> None:
    data = bytearray(whole)
    for place, byte in damage:
        data[int(place * len(data))] = byte
    prefix = {"parquet": b"", "ids": b"\0", "items": b"\xff"}[target]
    attack(target, prefix + bytes(data))


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"]), ("item",)),
        (
            pd.DataFrame({"user": pd.Series(["\ud800"], dtype=object), "item": [1]}),
            ("user", re.compile(".*surrogates.*?;")),
        ),
        (
            pd.DataFrame({"user": pd.Series([2**70], dtype=object), "item": [1]}),
            ("user", re.compile(".*?;")),
        ),
        (
            pd.DataFrame({"user": pd.Series([object()]), "item": [1]}),
            ("user", re.compile("Could not convert.*?;")),
        ),
        (
            pd.DataFrame({"user": pd.Series([1, "a"], dtype=object), "item": [1, 2]}),
            ("user", re.compile("Could not convert 'a'.*?;")),
        ),
        (
            pd.DataFrame({"user": pd.arrays.SparseArray([1]), "item": [1]}),
            ("user", re.compile("Sparse pandas data.*?;")),
        ),
    ],
    ids=range(6),
)
def test_frames_that_arrow_does_not_take(frame: Any, named: Named) -> None:
    refuse(frame, *named)


@pytest.mark.parametrize(
    ("field", "place", "value"), [("indices", 0, 99), ("indices", 0, -5), ("indptr", 1, 50)]
)
def test_matrices_that_point_outside(field: str, place: int, value: int) -> None:
    matrix = pytest.importorskip("scipy.sparse").csr_matrix(np.eye(3))
    getattr(matrix, field)[place] = value
    refuse(matrix, "table", re.compile("ind.*"))


@pytest.mark.parametrize("empty_ids", ["refuse", "drop"])
def test_a_page_index_that_calls_all_values_null_drops_no_row(
    tmp_path: Path, empty_ids: str
) -> None:
    users = [None if empty_ids == "drop" else 0, *(n % 50 for n in range(1, 5000))]
    table = pa.table({"user_id": users, "item_id": [n * n % 47 for n in range(5000)]})
    path = tmp_path / "raw.parquet"
    pq.write_table(table, path, write_page_index=True, use_dictionary=False, data_page_size=4096)
    # The list `null_pages` of a column: five pages, each with a value.
    content = path.read_bytes()
    assert b"\x19Q" + b"\x02" * 5 in content
    path.write_bytes(content.replace(b"\x19Q" + b"\x02" * 5, b"\x19Q" + b"\x01" * 5))
    prepared = prepare(path, tmp_path / "out", protocol="none", empty_ids=empty_ids)
    assert prepared.manifest.counts["num_rows_read"] == 5000
    assert len(prepared.users) == 50
    num_empty = prepared.manifest.counts.get("num_rows_with_an_empty_id", 0)
    assert num_empty == (empty_ids == "drop")


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
def test_an_unread_geometry_may_be_described_badly(tmp_path: Path, version: str) -> None:
    geo = {"version": version, "primary_column": "geometry", "columns": {"geometry": {
        "encoding": "WKB", "geometry_type": "Point"}}}  # fmt: skip
    table = pa.table({"user_id": USERS, "item_id": ITEMS, "geometry": [b"\1"] * 20})
    pq.write_table(
        table.replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / "geo.parquet"
    )
    prepared = prepare(tmp_path / "geo.parquet", tmp_path / "out", protocol="none")
    assert prepared.manifest.num_interactions == 20
