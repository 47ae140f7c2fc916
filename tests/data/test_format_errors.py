"""Errors in the format of a file name the file and the remedy."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.errors import SettingError
from tests.data.conftest import WriteFile, refuse
from tests.messages import Named

ROWS = "".join(f"{user},{item},{user + item}\n" for user in range(20) for item in range(8))
COLUMNS = ("user_id", "item_id", "timestamp")


@pytest.mark.parametrize("name", ["vad_data_true.npz", "raw.csv.bz2", "raw", "raw.parquet.gz"])
def test_a_file_of_another_format_is_not_opened(write: WriteFile, name: str) -> None:
    content = gzip.compress(b"1\n") if name.endswith(".gz") else b"1,2\n"
    refuse(write(content, name), name)


def zipped(name: str) -> bytes:
    return b"PK\x03\x04" + b"\0" * 26 + name.encode() + b"\0more"


BEGINNINGS = {
    b"PK\x03\x04rest": ".zip",
    zipped("[Content_Types].xml"): ".xlsx",
    zipped("mimetypeapplication/vnd.oasis.opendocument.spreadsheet"): ".ods",
    zipped("indices.npy"): ".npz",
    b"PAR1rest": ".parquet",
    b"BZh91AY&SYrest": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ".xls",
    b"SQLite format 3\0rest": "SQLite",
    b"ARROW1\0\0": "Feather",
    b"FEA1": "Feather",
    b"ORC\n\x1d": "ORC",
    b"Obj\x01\x04\x14avro.codec": "Avro",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x93NUMPY\x01\0": ".npy",
    b"\x80\x04\x95\x10": "pickle",
    b'model_checkpoint_path: "model.ckpt-9"': "TensorFlow",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n": "git lfs pull",
    b"\n<!DOCTYPE html><title>404</title>": r"\n<!DOCTYPE html><title>404",
    b"<?xml version='1.0'?>": "XML",
    b"\xef\xbb\xbf<html>": "HTML",
    b"%PDF-1.7": "PDF",
}


@pytest.mark.parametrize("start", BEGINNINGS, ids=BEGINNINGS.get)
@pytest.mark.parametrize("name", ["raw.csv", "raw.gz", "raw.parquet", "raw.db"])
def test_a_file_is_what_its_first_bytes_say(write: WriteFile, start: bytes, name: str) -> None:
    if start.startswith(b"PAR1") and name == "raw.parquet":
        refuse(write(start, name), name, "Parquet", re.compile(".*"))
        return
    refuse(write(start, name), name, BEGINNINGS[start])
    refuse(write(start, name), name, BEGINNINGS[start], delimiter=",")


def test_a_compressed_file_is_read_under_its_own_ending(write: WriteFile) -> None:
    packed = gzip.compress(b"user,item\n", mtime=0)
    for name in ("raw.csv", "raw.parquet", "raw.csv.zst"):
        refuse(write(packed, name))


@pytest.mark.parametrize("content", ['{"message": "Not Found"}', '[{"user_id": 1}]'])
def test_json_under_another_name_is_called_json(write: WriteFile, content: str) -> None:
    for name in ("raw.csv", "raw.gz", "raw.parquet", "raw.txt"):
        refuse(write(content, name), name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("raw.csv.gz", ".gz"), ("raw.csv.zst", ".zst"), ("raw.parquet", ".parquet")],
)
def test_text_under_the_name_of_another_format_is_quoted(
    write: WriteFile, name: str, kind: str
) -> None:
    refuse(write("user,item\n1,2\n", name), name, kind, "user,item\\n1,2\\n")


def test_a_compressed_file_cut_short(write: WriteFile) -> None:
    rows = "user_id,item_id,timestamp\n" + "".join(
        f"{number * 7919 % 100003},{number},1\n" for number in range(100_000)
    )
    for name, packed in (
        ("raw.csv.gz", gzip.compress(rows.encode())),
        ("raw.csv.zst", pa.compress(rows.encode(), "zstd", asbytes=True)),
    ):
        refuse(write(packed[: len(packed) // 2], name), name, re.compile("(?<=: ).*"))


@pytest.mark.parametrize("behind", [b"\0" * 512, b"junk" * 128])
@pytest.mark.parametrize("num_rows", [2, 100_000])
def test_bytes_behind_the_gzip_data(write: WriteFile, behind: bytes, num_rows: int) -> None:
    rows = "user_id,item_id\n" + "".join(f"{row % 97},{row}\n" for row in range(num_rows))
    source = write(gzip.compress(rows.encode()) + behind, "raw.csv.gz")
    refuse(source, "raw.csv.gz", re.compile("zlib .*?;"), "gunzip")


def test_what_text_needs_a_hint(write: WriteFile) -> None:
    refuse(write("1\t2\n", "u.data"), "u.data", "--delimiter")


def test_a_header_in_a_file_with_named_columns(write: WriteFile) -> None:
    source = write("userId,movieId,when\n" + ROWS)
    refuse(source, "raw.csv", 1, "userId,movieId,when", "--columns", columns=COLUMNS)


def test_fewer_names_than_fields(write: WriteFile) -> None:
    refuse(write(ROWS), "raw.csv", 1, 3, "--columns", 2, "0,0,0", columns=("user_id", "item_id"))


def test_lines_of_headerless_files_are_counted(write: WriteFile) -> None:
    content = ROWS.replace(",", "::") + "1::2::soon\n1::2::3\n"
    refuse(write(content, "raw.dat"), "raw.dat", 161, "soon", "timestamp", columns=COLUMNS)


@pytest.mark.parametrize(
    ("content", "settings", "named"),
    [
        ("user,caf\xe9\n".encode("latin-1"), {}, ("raw.csv", 1)),
        ("user,item\n".encode("utf-16"), {}, ("raw.csv", "--encoding")),
        ("user,item\n".encode("utf-16-be"), {"encoding": "utf-16"},
         ("raw.csv",)),
        (b"user,item\n1,\x93x\x94\n", {"encoding": "latin-1"},
         ("raw.csv", 2)),
        (b"user,item\r\n1,2\r\n1,\xe9\r\n", {}, (3,)),
        (b'user,"item" \n1,2\n', {}, (1, "\"")),
        (b"\xff\xfe" + "user,item\n1,\ud83d\n".encode("utf-16-le", "surrogatepass"),
         {"encoding": "utf-16"},
         ("raw.csv", 2)),
        (b"\nuser,item\n1,2\n", {}, ("raw.csv",)),
    ],
)  # fmt: skip
def test_text_that_is_not_as_said(
    write: WriteFile, content: bytes, settings: dict[str, Any], named: Named
) -> None:
    refuse(write(content), *named, **settings)


def test_formats_of_what_is_not_text() -> None:
    table = pa.table({"user": [1], "item": [1]})
    named = ("--delimiter", "--columns", "--encoding", "--quote", "table")
    refuse(table, *named, error=SettingError, columns=COLUMNS)


def test_times_in_some_files_only(write: WriteFile) -> None:
    first = write("user_id,item_id\n1,2\n", "a.csv")
    second = write("user_id,item_id,timestamp\n1,3,4\n", "b.csv")
    refuse([first, second], "a.csv", "b.csv", "timestamp")
    refuse([second, first], "a.csv", "timestamp", "b.csv")


class Lazy:
    """A frame that is not computed yet."""

    def collect(self) -> None:
        """Never called."""


def test_frames_that_are_none_yet() -> None:
    refuse(Lazy())


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (
            ("manifest.json", "items.parquet"),
            ("prepared dataset",),
        ),
        (
            ("metrics.jsonl", "config.json"),
            ("run",),
        ),
    ],
)
def test_directories_of_ours_are_no_raw_data(
    names: tuple[str, ...], named: Named, tmp_path: Path
) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    (folder / "more.csv").write_text("user_id,item_id\n1,1\n")
    refuse(folder, *named)


def test_datasets_and_runs_in_a_folder_are_left_out(write: WriteFile, tmp_path: Path) -> None:
    folder = write("user_id,item_id\n1,2\n", "folder/a.csv").parent
    config = PrepareConfig(protocol="none")
    prepare(folder, folder / "datasets" / "a", config)
    write("{}", "folder/runs/a/config.json")
    write("{}", "folder/runs/a/metrics.jsonl")
    assert [
        entry["path"] for entry in prepare(folder, tmp_path / "out", config).manifest.source
    ] == [str(folder / "a.csv")]
    refuse(folder / "datasets")
