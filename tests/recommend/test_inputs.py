"""Ids from files in the forms that people save."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import IdTable, PairsConfig
from foretaste.errors import InputError
from foretaste.recommend import read_ids
from tests.messages import Named, raises

ITEMS = IdTable.from_ids("item", ["1", "007", "é\u2028x", "5", "a,b", "b", "3"])
USERS = IdTable.from_ids("user", [1, 2, 3])


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("ids.txt", b"1\n2\n2\n", ["1", "2", "2"]),
        ("ids", b"\xef\xbb\xbf007\r\n\r\nb c\r\n", ["007", "b c"]),
        ("ids.txt", "é\u2028x\ny".encode(), ["é\u2028x", "y"]),
        ("ids.csv", b"item_id\n5\n6\n", ["5", "6"]),
        ("ids.csv", b'\xef\xbb\xbfitem_id,title\r\n"a,b",x\r\n\r\nc,y\r\n', ["a,b", "c"]),
        ("ids.csv", b'item_id,title\n5,"two\nlines"\n6,\n', ["5", "6"]),
        ("ids.tsv", b"item_id\ttitle\n5\ta,b\n", ["5"]),
        ("ids.csv", b"stock,movieId\n1,5\n3,6\n", ["5", "6"]),
        ("ids.csv", b"id,title\n5,x\n", ["5"]),
        ("ids.csv", b"whatever\n5\n", ["5"]),
        ("ids.csv.gz", gzip.compress(b"stock,item\n1,5\n", mtime=0), ["5"]),
    ],
)
def test_ids_come_in_order(tmp_path: Path, name: str, content: bytes, ids: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_ids(tmp_path / name, ITEMS) == ids


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("lager.csv", "Platz;Artikel\n7;5\n8;6é\n", {"item_column": "Artikel"}),
        ("lager.csv", "item_id;Platz\n5;7\n6é;8\n", {"item_column": "Artikel"}),
        ("lager.csv", '7;5\n8;"6é"\n', {"columns": ("Platz", "Artikel"), "item_column": "Artikel"}),
        ("lager.txt", "5\n6é\n", {}),
    ],
)
def test_a_file_is_read_in_its_declared_format(
    tmp_path: Path, name: str, text: str, settings: dict[str, Any]
) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with raises(InputError, name):
        read_ids(tmp_path / name, ITEMS)
    config = PairsConfig(encoding="latin-1", **settings)
    assert read_ids(tmp_path / name, ITEMS, config) == ["5", "6é"]


def test_the_column_of_parquet_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"Platz": [7, 7], "Artikel": [5, 6]}), path)
    with raises(InputError, "ids.parquet", "item_id", "Platz", "Artikel", "--item-column"):
        read_ids(path, ITEMS)
    assert read_ids(path, ITEMS, PairsConfig(item_column="Artikel")) == [5, 6]


@pytest.mark.parametrize("values", [pa.array([3, 1]), pa.array(["b", "a"]).dictionary_encode()])
def test_parquet_gives_the_column_of_ids(tmp_path: Path, values: pa.Array) -> None:
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"stock": [7, 7], "item_id": values, "other": [1.5, 2.5]}), path)
    assert read_ids(path, ITEMS) == values.to_pylist()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("ids.txt", b"", ()),
        ("ids.csv", b"", ()),
        ("ids.csv", b"17\n18\n", (1, 17)),
        ("ids.csv", b"item_id,t\n5,x\n,y\n", (3,)),
        ("ids.csv", b'item_id\n"5', (2,)),
        ("ids.csv", b"b\n5\n", (1, "b")),
        ("ids.csv", b"stock,price\n5,1\n", ("item_id", "stock", "price")),
        ("ids.csv", b"item_id,itemId\n5,1\n", ("item_id",)),
        ("ids.csv", b"item_id\n\xff\n", (2,)),
        ("ids.csv", b"item_id\n8\n9\n", (2, 8, 9)),
        ("ids.txt", b"\xff\xfe1\x00", ()),
        ("ids.parquet", b"PAR1", (re.compile("(?<=Parquet: ).*"),)),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: bytes, named: Named) -> None:
    (tmp_path / name).write_bytes(content)
    with raises(InputError, name, *named):
        read_ids(tmp_path / name, ITEMS)


def test_a_name_in_parquet_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"item_id": ["5"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"item_id", b"ite\x94_id"))
    with raises(InputError, "ids.parquet"):
        read_ids(path, ITEMS)


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.array([1.0, 2.0]), ("item_id", "1.0", 0)),
        (pa.array([1, None]), ("item_id", 1)),
        (pa.array([], pa.int64()), ()),
    ],
)
def test_errors_name_wrong_values_in_parquet(
    tmp_path: Path, column: pa.Array, named: Named
) -> None:
    pq.write_table(pa.table({"item_id": column}), tmp_path / "ids.parquet")
    with raises(InputError, "ids.parquet", *named):
        read_ids(tmp_path / "ids.parquet", ITEMS)


def test_paths_without_a_file_of_ids_are_named(tmp_path: Path) -> None:
    with raises(InputError, "nothing.txt"):
        read_ids(tmp_path / "nothing.txt", ITEMS)
    (tmp_path / "folder").mkdir()
    with raises(InputError, "folder"):
        read_ids(tmp_path / "folder", ITEMS)


def test_each_kind_has_its_column(tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("itemId,userId\n5,3\n7,9\n")
    assert read_ids(path, ITEMS) == ["5", "7"]
    assert read_ids(path, USERS) == ["3", "9"]
