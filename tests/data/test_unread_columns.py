"""Unread columns may have any type and any name, in frames and in files of Parquet."""

from __future__ import annotations

import datetime
import decimal
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foretaste
from foretaste.data import PrepareConfig, prepare, read_histories
from tests.data.conftest import refuse
from tests.messages import whole

# The words of Arrow, pandas and NumPy.
REASON = re.compile(r"(?s)(?<=Arrow column: ).*?(?=; make)")
PAIRS = {"user_id": [1, 1, 2], "item_id": [7, 8, 7]}
ALL = PrepareConfig(protocol="none")
UTC = datetime.UTC
ODD = {
    "text and integers": ["a", 1, 2],
    "bytes and integers": [b"a", 1, 2],
    "dictionary and list": [{"a": 1}, [1], None],
    "decimal and text": [decimal.Decimal(1), "a", None],
    "over 64 bits": [2**64, 1, 2],
    "complex": [1j, 1, 2],
    "ragged": [np.zeros(2), np.zeros((2, 2)), None],
    "tuples": [(1, "a"), (2,), None],
    "paths": [Path("a"), Path("b"), None],
    "objects": [object(), object(), object()],
    "surrogates": ["\ud800", "a", "b"],
    "mixed times": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=UTC), "x"],
}


def series(values: list[Any]) -> pd.Series:
    column = pd.Series([None] * len(values), dtype=object)
    for row, value in enumerate(values):
        column.iat[row] = value
    return column


COLUMNS = {name: series(values) for name, values in ODD.items()} | {
    "sparse": pd.arrays.SparseArray([1, 0, 0]),
    "categories": pd.Categorical(["a", 1, "a"]),
    "longdouble": np.array([1, 2, 3], dtype=np.longdouble),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_a_frame_is_read_whatever_its_other_columns_hold(column: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(PAIRS | {"note": column})
    dataset = prepare(frame, tmp_path / "out", ALL)
    assert (dataset.manifest.num_interactions, dataset.items.ids()) == (3, [7, 8])
    assert dataset.manifest.notes["not used"] == "'note'"
    assert read_histories(frame) == {1: [7, 8], 2: [7]}


def test_a_model_is_fitted_to_a_frame_whatever_its_other_columns_hold() -> None:
    assert foretaste.fit("popularity", pd.DataFrame(PAIRS | COLUMNS)).items.ids() == [7, 8]


@pytest.mark.parametrize(
    "name", [name for name in COLUMNS if name not in ("sparse", "categories", "tuples")]
)
def test_the_same_column_is_named_if_it_is_read(name: str) -> None:
    frame = pd.DataFrame({"user_id": COLUMNS[name], "item_id": [7, 8, 7]})
    refuse(frame, whole("user_id"), protocol="none")


@pytest.mark.parametrize("names", [["n", "n"], ["Id", "ID"], ["", ""], ["n", "n_1", "n"]])
def test_other_columns_may_have_any_name(names: list[str], tmp_path: Path) -> None:
    columns = [*PAIRS.values(), *([9, 9, 9] for _ in names)]
    table = pa.table(columns, names=[*PAIRS, *names])
    pq.write_table(table, tmp_path / "raw.parquet")
    frame = pd.DataFrame(dict(enumerate(columns)))
    frame.columns = table.column_names
    for number, source in enumerate((table, tmp_path / "raw.parquet", frame)):
        dataset = prepare(source, tmp_path / f"out-{number}", ALL, items=source)
        assert dataset.items.ids() == [7, 8]
        assert read_histories(source) == {1: [7, 8], 2: [7]}


def test_a_column_that_is_read_must_be_the_only_one_of_its_name(tmp_path: Path) -> None:
    table = pa.table([*PAIRS.values(), [1, 2, 3]], names=["user_id", "item_id", "item_id"])
    pq.write_table(table, tmp_path / "raw.parquet")
    for source in (table, tmp_path / "raw.parquet"):
        refuse(source, "item_id")
        refuse(pd.DataFrame(PAIRS), "item_id", items=source)
    renamed = pa.table([[7, 8, 9], *PAIRS.values()], names=["n_1", "user_id", "n"])
    twins = renamed.append_column("n", pa.array([0, 0, 0]))
    pq.write_table(twins, tmp_path / "raw.parquet")
    dataset = prepare(tmp_path / "raw.parquet", tmp_path / "out", ALL, item_column="n_1")
    assert dataset.items.ids() == [7, 8, 9]


def test_polars_integers_of_128_bits(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(PAIRS | {"note": pl.Series([2**70, 1, 2], dtype=pl.Int128)})
    assert prepare(frame, tmp_path / "out", ALL).items.ids() == [7, 8]
    refuse(frame, "note", REASON, item_column="note")


def test_a_single_column_is_no_frame() -> None:
    pl = pytest.importorskip("polars")
    for source in (pl.Series([1, 2]), pa.array([1, 2]), pa.chunked_array([[1, 2]])):
        name = type(source).__name__
        refuse(source, name)
