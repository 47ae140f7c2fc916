"""Errors in the format of a file come with the file and what to do."""

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

ROWS = "".join(f"{user},{item},{user + item}\n" for user in range(20) for item in range(8))
COLUMNS = ("user_id", "item_id", "timestamp")


@pytest.mark.parametrize("name", ["vad_data_true.npz", "raw.csv.bz2", "raw", "raw.parquet.gz"])
def test_a_file_of_another_format_is_not_opened(write: WriteFile, name: str) -> None:
    refuse(write(b"\x80\x04.", name), f"{name}: its name does not tell its format; expected .csv")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"PK\x03\x04rest", r"raw\.csv: is not text but a \.zip file, .*; unpack it$"),
        (
            b"PK\x03\x04" + b"\0" * 26 + b"[Content_Types].xml",
            r"is not text but a \.xlsx file, .*; save it as CSV or Parquet$",
        ),
        (
            gzip.compress(b"user,item\n", mtime=0),
            r"is not text but a \.gz file, .*; rename it to end in",
        ),
        (b"PAR1rest", r"is not text but a \.parquet file, .*; rename it to end in \.parquet"),
    ],
)
def test_packed_files_are_refused_by_content(write: WriteFile, start: bytes, message: str) -> None:
    refuse(write(start), message)


@pytest.mark.parametrize("name", ["raw.csv.gz", "raw.csv.zst"])
def test_text_that_is_not_compressed_as_its_name_says(write: WriteFile, name: str) -> None:
    refuse(write("user,item\n1,2\n", name), f"{name}: cannot be read: ")


def test_a_compressed_file_cut_short(write: WriteFile) -> None:
    rows = "user_id,item_id,timestamp\n" + "".join(
        f"{number * 7919 % 100003},{number},1\n" for number in range(100_000)
    )
    for name, packed in (
        ("raw.csv.gz", gzip.compress(rows.encode())),
        ("raw.csv.zst", pa.compress(rows.encode(), "zstd", asbytes=True)),
    ):
        refuse(write(packed[: len(packed) // 2], name), re.escape(name))


def test_what_text_needs_a_hint(write: WriteFile) -> None:
    refuse(write("1\t2\n", "u.data"), r"u\.data: its name does not tell.*give --delimiter")


def test_a_header_where_there_should_be_none(write: WriteFile) -> None:
    source = write("userId,movieId,when\n" + ROWS)
    message = r"raw\.csv, line 1: holds column names: 'userId,movieId,when'; --columns is for files"
    refuse(source, message, columns=COLUMNS)


def test_fewer_names_than_fields(write: WriteFile) -> None:
    message = (
        r"raw\.csv, line 1: has 3 fields between ',', and --columns names 2, user_id,item_id; "
        r"name every one, with - for what is not read: '0,0,0'"
    )
    refuse(write(ROWS), message, columns=("user_id", "item_id"))


def test_lines_of_headerless_files_are_counted(write: WriteFile) -> None:
    content = ROWS.replace(",", "::") + "1::2::soon\n1::2::3\n"
    message = r"raw\.dat, line 161: time 'soon' does not fit: .*column 'timestamp'"
    refuse(write(content, "raw.dat"), message, columns=COLUMNS)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("user,caf\xe9\n".encode("latin-1"), {}, r"raw\.csv, line 1: is not UTF-8 .*encoding"),
        ("user,item\n".encode("utf-16"), {}, r"raw\.csv: is UTF-16 text; .*--encoding utf-16"),
        ("user,item\n".encode("utf-16-be"), {"encoding": "utf-16"},
         r"raw\.csv: does not begin with the byte order mark of little-endian UTF-16"),
        (b"user,item\n1,\x93x\x94\n", {"encoding": "latin-1"},
         r"raw\.csv, line 2: holds bytes that latin-1 does not have, as windows-1252 text does"),
        (b"user,item\r\n1,2\r\n1,\xe9\r\n", {}, r"line 3: is not UTF-8 .* iconv -t UTF-8: "),
        (b'user,"item" \n1,2\n', {}, r"line 1: cannot be parsed \(',' expected after '\"'"),
        (b"\xff\xfe" + "user,item\n1,\ud83d\n".encode("utf-16-le", "surrogatepass"),
         {"encoding": "utf-16"},
         r"raw\.csv, line 2: is not UTF-16 text; give its encoding"),
        (b"\nuser,item\n1,2\n", {}, r"raw\.csv: its first line is blank"),
    ],
)  # fmt: skip
def test_text_that_is_not_as_said(
    write: WriteFile, content: bytes, settings: dict[str, Any], message: str
) -> None:
    refuse(write(content), message, **settings)


def test_formats_of_what_is_not_text() -> None:
    table = pa.table({"user": [1], "item": [1]})
    message = "--delimiter, --columns, --encoding and --quote are for text files, and table is none"
    refuse(table, message, SettingError, columns=COLUMNS)


def test_times_in_some_files_only(write: WriteFile) -> None:
    first = write("user_id,item_id\n1,2\n", "a.csv")
    second = write("user_id,item_id,timestamp\n1,3,4\n", "b.csv")
    refuse([first, second], r"a\.csv: has no column of times, and .*b\.csv has 'timestamp'")
    refuse([second, first], r"a\.csv: has no column 'timestamp', which .*b\.csv has; its columns")


class Lazy:
    """A frame that is still to be computed."""

    def collect(self) -> None:
        """Never called."""


def test_frames_that_are_none_yet() -> None:
    refuse(Lazy(), "source must be a path, .* got Lazy; call its collect.. first")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("manifest.json", "is a prepared dataset, not raw data; train on it as it is"),
        ("metrics.jsonl", "is a run, not data; name the dataset that it was trained on"),
    ],
)
def test_directories_of_ours_are_no_raw_data(name: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / name).write_text("{}")
    (folder / "more.csv").write_text("user_id,item_id\n1,1\n")
    refuse(folder, message)


def test_datasets_and_runs_in_a_folder_are_left_out(write: WriteFile, tmp_path: Path) -> None:
    folder = write("user_id,item_id\n1,2\n", "folder/a.csv").parent
    config = PrepareConfig(protocol="none")
    prepare(folder, folder / "datasets" / "a", config)
    write("{}", "folder/runs/a/config.json")
    write("{}", "folder/runs/a/metrics.jsonl")
    assert [
        entry["path"] for entry in prepare(folder, tmp_path / "out", config).manifest.source
    ] == [str(folder / "a.csv")]
    refuse(folder / "datasets", "datasets: holds prepared datasets or runs, and no raw data$")
    write("{}", "folder/other/manifest.json")
    refuse(
        folder, r"other/manifest\.json: has no column 'user_id', nor 'item_id', which .*a\.csv has"
    )
