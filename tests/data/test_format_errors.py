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

ROWS = "".join(f"{user},{item},{user + item}\n" for user in range(20) for item in range(8))
COLUMNS = ("user_id", "item_id", "timestamp")


@pytest.mark.parametrize("name", ["vad_data_true.npz", "raw.csv.bz2", "raw", "raw.parquet.gz"])
def test_a_file_of_another_format_is_not_opened(write: WriteFile, name: str) -> None:
    content = gzip.compress(b"1\n") if name.endswith(".gz") else b"1,2\n"
    refuse(write(content, name), f"{name}: its name does not tell its format; expected .csv")


def zipped(name: str) -> bytes:
    return b"PK\x03\x04" + b"\0" * 26 + name.encode() + b"\0more"


BEGINNINGS = {
    b"PK\x03\x04rest": r"a \.zip file, despite its name; unpack it",
    zipped("[Content_Types].xml"): r"a \.xlsx file, despite its name; save it as CSV or Parquet",
    zipped("mimetypeapplication/vnd.oasis.opendocument.spreadsheet"): r"a \.ods file",
    zipped("indices.npy"): r"a \.npz file, .*; load it in Python and give a frame or a sparse",
    b"PAR1rest": r"a \.parquet file, despite its name; rename it to end in \.parquet",
    b"BZh91AY&SYrest": r"a \.bz2 file, .*; unpack it",
    b"\xfd7zXZ\0": r"a \.xz file, .*; unpack it",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": r"a \.xls file, .*; save it as CSV",
    b"SQLite format 3\0rest": r"a SQLite file, despite its name; name it as sqlite:///.*raw",
    b"ARROW1\0\0": r"a Feather file, .*; write its rows as Parquet",
    b"FEA1": r"a Feather file",
    b"ORC\n\x1d": r"an ORC file, .*; write its rows as Parquet",
    b"Obj\x01\x04\x14avro.codec": "an Avro file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"\x93NUMPY\x01\0": r"a \.npy file, .*; load it in Python",
    b"\x80\x04\x95\x10": r"a pickle, like the prepared data of NCF .*; "
    r"docs/coming-from-nvidia\.md has the script",
    b'model_checkpoint_path: "model.ckpt-9"': "TensorFlow's list of checkpoints, ",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n": r"a pointer of Git LFS, "
    r"despite its name; get the file with git lfs pull: 'version https://git-lfs\.github\.com/spec/v1",
    b"\n<!DOCTYPE html><title>404</title>": r"a page of HTML, .*: '\\n<!DOCTYPE html><title>404",
    b"<?xml version='1.0'?>": "XML, despite its name; save it as CSV",
    b"\xef\xbb\xbf<html>": "a page of HTML",
    b"%PDF-1.7": "a PDF",
}


@pytest.mark.parametrize("start", BEGINNINGS)
@pytest.mark.parametrize("name", ["raw.csv", "raw.gz", "raw.parquet", "raw.db"])
def test_a_file_is_what_its_first_bytes_say(write: WriteFile, start: bytes, name: str) -> None:
    if start.startswith(b"PAR1") and name == "raw.parquet":
        refuse(write(start, name), f"{name}: cannot be read as Parquet")
        return
    refuse(write(start, name), f"{name}: is {BEGINNINGS[start]}")
    refuse(write(start, name), BEGINNINGS[start], delimiter=",")


def test_a_compressed_file_is_read_under_its_own_ending(write: WriteFile) -> None:
    packed = gzip.compress(b"user,item\n", mtime=0)
    for name in ("raw.csv", "raw.parquet", "raw.csv.zst"):
        refuse(write(packed, name), r"is a \.gz file, despite its name; rename it to end in \.gz")


@pytest.mark.parametrize("content", ['{"message": "Not Found"}', '[{"user_id": 1}]'])
def test_json_under_another_name_is_called_json(write: WriteFile, content: str) -> None:
    for name in ("raw.csv", "raw.gz", "raw.parquet", "raw.txt"):
        refuse(write(content, name), rf"{name}: is JSON, despite its name; .* \.jsonl: '[\[{{]")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("raw.csv.gz", r"\.gz"), ("raw.csv.zst", r"\.zst"), ("raw.parquet", r"\.parquet")],
)
def test_text_under_the_name_of_another_format_is_quoted(
    write: WriteFile, name: str, kind: str
) -> None:
    refuse(
        write("user,item\n1,2\n", name),
        rf"{name}: is not a {kind} file but text, despite its name: 'user,item\\n1,2\\n'",
    )


def test_a_compressed_file_cut_short(write: WriteFile) -> None:
    rows = "user_id,item_id,timestamp\n" + "".join(
        f"{number * 7919 % 100003},{number},1\n" for number in range(100_000)
    )
    for name, packed in (
        ("raw.csv.gz", gzip.compress(rows.encode())),
        ("raw.csv.zst", pa.compress(rows.encode(), "zstd", asbytes=True)),
    ):
        refuse(write(packed[: len(packed) // 2], name), re.escape(name))


@pytest.mark.parametrize("behind", [b"\0" * 512, b"junk" * 128])
@pytest.mark.parametrize("num_rows", [2, 100_000])
def test_bytes_behind_the_gzip_data(write: WriteFile, behind: bytes, num_rows: int) -> None:
    rows = "user_id,item_id\n" + "".join(f"{row % 97},{row}\n" for row in range(num_rows))
    refuse(
        write(gzip.compress(rows.encode()) + behind, "raw.csv.gz"),
        r"raw\.csv\.gz: cannot be read: zlib .*; the gzip data end before .* unpack it with",
    )


def test_what_text_needs_a_hint(write: WriteFile) -> None:
    refuse(write("1\t2\n", "u.data"), r"u\.data: its name does not tell.*give --delimiter")


def test_a_header_in_a_file_with_named_columns(write: WriteFile) -> None:
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
    """A frame that is not computed yet."""

    def collect(self) -> None:
        """Never called."""


def test_frames_that_are_none_yet() -> None:
    refuse(Lazy(), "source must be a path, .* got Lazy; call its collect.. first")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("manifest.json", "items.parquet"),
            "is a prepared dataset, not raw data; train on it as it is",
        ),
        (
            ("metrics.jsonl", "config.json"),
            "is a run, not data; name the dataset that it was trained on",
        ),
    ],
)
def test_directories_of_ours_are_no_raw_data(
    names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in names:
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
