"""Ids from files as people save them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.errors import InputError
from foretaste.recommend import read_ids


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
        ("IDS.CSV", b"item_id\n5\n", ["5"]),
    ],
)
def test_ids_come_in_order(tmp_path: Path, name: str, content: bytes, ids: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_ids(tmp_path / name) == ids


@pytest.mark.parametrize(
    "column",
    [
        pa.array([3, 1], pa.int32()),
        pa.array(["b", "a"]),
        pa.array(["b", "a"], pa.large_string()),
        pa.array(["b", "a"]).dictionary_encode(),
    ],
)
def test_parquet_gives_its_first_column(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"item_id": column, "other": [1.5, 2.5]}), path)
    assert read_ids(path) == column.to_pylist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.txt", b"", "holds no ids"),
        ("ids.txt", b"\n \n", "holds no ids"),
        ("ids.csv", b"", "holds no ids"),
        ("ids.csv", b"item_id\n", "holds no ids"),
        ("ids.csv", b"17\n18\n", "line 1: a header belongs here, found the id '17'"),
        ("ids.csv", b"item_id,t\n5,x\n,y\n", "line 3: the id is empty"),
        ("ids.csv", b'item_id\n"5', "line 2: "),
        ("ids.txt", b"\xff\xfe1\x00", "is not UTF-8 text"),
        ("ids.parquet", b"PAR1", "is not readable Parquet"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_ids(tmp_path / name)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/dev/null", "/dev/null: is a directory, a pipe or a device; name a file that holds ids"),
        ("/", "/: is a directory, a pipe or a device"),
        ("/nope.txt", "/nope.txt: there is no such file"),
    ],
)
def test_what_is_no_file_is_called_what_it_is(path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_ids(path)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, 2.0]), "column 'item_id' is double; ids are integers or text"),
        (pa.array([1, None]), "row 2: the id is missing"),
        (pa.array([], pa.int64()), "holds no ids"),
    ],
)
def test_what_is_wrong_in_parquet_is_named(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"item_id": column}), tmp_path / "ids.parquet")
    with pytest.raises(InputError, match=message):
        read_ids(tmp_path / "ids.parquet")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.txt: there is no such file"):
        read_ids(tmp_path / "nothing.txt")
