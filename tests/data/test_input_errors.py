"""Errors in an input name its file, line and an example."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.data.preparation.duckdb_engine import DuckDBEngine
from foretaste.errors import InputError, SettingError
from tests.data.conftest import WriteFile, refuse

HEADER = "user_id,item_id,rating,timestamp\n"
ROWS = "".join(f"{user},{item},4.0,{user + item}\n" for user in range(20) for item in range(8))


@pytest.mark.parametrize(
    ("bad_row", "message"),
    [
        (b"1,2,3\n", r"raw\.csv, line 162: expected 4 fields, found 3: '1,2,3'"),
        (b"1,2,3,4,5\n", r"raw\.csv, line 162: expected 4 fields, found 5: '1,2,3,4,5'"),
        (b'1,"2,3,4\n', r"raw\.csv, line 162: a quote is opened and never closed"),
        (b"1,\xff\xfe,3,4\n", r"raw\.csv, line 162: is not UTF-8 text; .*iconv"),
        (b"1,2,3,soon\n", r"line 162: time 'soon' does not fit: times are all"),
        (b"1,2,3,\n", r"raw\.csv, line 162: time is empty \(column 'timestamp', 1 row like it\); "
                      r".* --protocol held-out-users \(protocol='held-out-users' in Python\)$"),
        (b"1,2,3,nan\n", r"raw\.csv, line 162: time 'nan' does not fit: times are all"),
        (b",2,3,4\n", r"raw\.csv, line 162: user_id is empty \(column 'user_id', 1 row like it\)"),
        (b'1,"",3,4\n', r"raw\.csv, line 162: item_id is empty \(column 'item_id', 1 row"),
        (b"1,2\x00,3,4\n", r"raw\.csv, line 162: item_id '2\\x00' holds a NUL character"),
    ],
)  # fmt: skip
def test_malformed_rows(write: WriteFile, bad_row: bytes, message: str) -> None:
    source = write(HEADER.encode() + ROWS.encode() + bad_row + b"1,2,3,4\n")
    refuse(source, message)


@pytest.mark.parametrize(
    ("rating", "message"),
    [
        ("good", r"line 162: rating 'good' is not a finite number \(column 'rating', 1 row"),
        ("nan", r"line 162: rating 'nan' is not a finite number"),
        ("inf", r"line 162: rating 'inf' is not a finite number"),
        ("", r"line 162: rating is empty"),
        ('"0,5"', r"line 162: rating '0,5' .* 1 row like it\); write .* with a point: 0\.5$"),
    ],
)
def test_ratings_are_checked_if_a_rule_reads_them(
    write: WriteFile, tmp_path: Path, rating: str, message: str
) -> None:
    source = write(f"{HEADER}{ROWS}1,2,{rating},4\n")
    refuse(source, message, min_rating=3.0)
    assert prepare(source, tmp_path / "out").manifest.counts["num_rows_read"] == 161


@pytest.mark.parametrize("protocol", ["held-out-users", "none"])
def test_times_are_not_read_if_the_protocol_does_not_look_at_them(
    write: WriteFile, tmp_path: Path, protocol: Any
) -> None:
    source = write("user_id,item_id,date\n" + ROWS.replace(",4.0,", ",31/12/").replace("\n", ",\n"))
    prepare(source, tmp_path / "out", PrepareConfig(protocol=protocol))


def test_mixed_line_endings(write: WriteFile) -> None:
    source = write("user_id,item_id\n1,2\r\n1,3\n1,4\r\n")
    refuse(source, r"raw\.csv: mixes line endings, .* dos2unix")


def test_lines_are_counted_through_quotes_and_blank_lines(write: WriteFile) -> None:
    source = write('user_id,item_id,note\n1,2,"two\nlines"\n\n,3,x\n')
    refuse(source, r"raw\.csv, line 5: user_id is empty")


def test_the_file_of_several_is_named(write: WriteFile, tmp_path: Path) -> None:
    write(HEADER + ROWS, "a.csv")
    write(HEADER + "1,2,3,4\n1,2,x\n", "b.csv")
    refuse(tmp_path / "*.csv", r"b\.csv, line 3: expected 4 fields, found 3")


def test_a_value_wrong_in_one_of_several_files(write: WriteFile) -> None:
    first = write(HEADER + ROWS, "a.csv")
    second = write("timestamp,item_id,user_id\n1,2,3\nnever,2,3\n", "b.csv")
    refuse([first, second], r"b\.csv, line 3: time 'never'")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"raw\.csv: is empty; expected a first line with the column names"),
        (HEADER.encode(), r"raw\.csv: has no rows, only column names"),
        (b"a,b\n1,2\n",
         r"raw\.csv: none of its columns looks like user_id or item_id: 'a', 'b'\. Name them with "
         r"--user-column and --item-column \(user_column=\.\.\., item_column=\.\.\. in Python\), "
         r"and a column of times, if there is one, with --time-column\.$"),
        (b"user,b,time\n1,2,3\n", r"looks like item_id: 'user', 'b', 'time'\. Name it with "
                                  r"--item-column \(item_column=\.\.\. in Python\)\.$"),
        (b"196,242,3\n1,2,3\n", r"The first line may be data: .*--columns \(.*\), in order"),
        (b"ana,nocturne\nben,bolero\n", "The first line may be data: .*--columns .*, in order"),
        (b"user_id,userId,item\n1,2,3\n", "'user_id' and 'userId' could both be user_id"),
        (b"user,item,item\n1,2,3\n", r"raw\.csv: column 'item' appears more than once"),
        (b"user,it\xffem\n1,2\n", r"raw\.csv, line 1: is not UTF-8 text"),
    ],
)  # fmt: skip
def test_files_without_usable_columns(write: WriteFile, content: bytes, message: str) -> None:
    refuse(write(content), message)


def test_columns_in_another_language_are_named_at_once(write: WriteFile) -> None:
    source = write("Bestellnummer;Kundennummer;Artikelnummer\nB1;ana;x\n")
    listed = "its columns are 'Bestellnummer', 'Kundennummer', 'Artikelnummer'; did you mean"
    refuse(
        source,
        r"has no column 'kundennummer', asked for with --user-column .*, nor 'artikelnummer', "
        rf"asked for with --item-column .*; {listed} 'Kundennummer' and 'Artikelnummer'\?$",
        user_column="kundennummer",
        item_column="artikelnummer",
    )
    refuse(
        source,
        rf"{listed} 'Kundennummer'\? None looks like item_id either\. Name it with --item-column",
        user_column="kundennummer",
    )


def test_a_column_asked_for_of_a_file_without_names(write: WriteFile) -> None:
    message = r"has no column 'user', .* 'alice', '42', '5'\. The first line may be data: "
    refuse(write("alice,42,5\n"), message, user_column="user")


@pytest.mark.parametrize("content", [HEADER + ROWS, "listener,track,id2,x-3\n1,2,3,4\n"])
def test_a_line_of_names_is_not_taken_for_data(
    write: WriteFile, tmp_path: Path, content: str
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(write(content), tmp_path / "out", PrepareConfig(user_column="buyer"))
    assert "first line" not in str(caught.value)


def test_only_text_has_a_first_line() -> None:
    """A frame's columns may be numbers, and --columns is not for frames."""
    message = r"if there is one, with --time-column\.$"
    refuse(pa.table({"0": ["ana"], "1": [42]}), message)


def test_one_column_cannot_be_two_things(write: WriteFile) -> None:
    message = "user_column and item_column are both 'item_id'"
    refuse(write(HEADER + ROWS), message, SettingError, user_column="item_id")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.csv", r"absent\.csv: there is no such file"),
        ("*.tsv", r"\*\.tsv: there is no such file"),
        ("datasets", r"datasets: is a folder without files in it"),
    ],
)
def test_files_that_are_not_there(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "datasets").mkdir()
    refuse(tmp_path / name, message)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, 2.5]), r"user_id '2\.5' is not an id .* 1 row like it\); turn its values"),
        (
            pa.array([b"a", b"b"]),
            "'user_id' is of type binary; user_id must be text or integers",
        ),
        (pa.array([1, None]), r"raw\.parquet: user_id is empty \(column 'user_id', 1 row"),
    ],
)
def test_parquet_columns_of_the_wrong_type(tmp_path: Path, column: pa.Array, message: str) -> None:
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"user_id": column, "item_id": [1, 2]}), path)
    refuse(path, message)


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"user_id": [1], "item_id": [1], "Item_ID": [2]}), path)
    refuse(path, "columns 'item_id' and 'Item_ID' could both be item_id; say which with")
    made = prepare(path, tmp_path / "out", protocol="none", item_column="Item_ID")
    assert made.items.ids() == [2]


@pytest.mark.parametrize("columns", [{}, {"user_id": [], "item_id": []}])
def test_frames_without_anything_in_them(columns: dict[str, list[int]]) -> None:
    message = (
        "table: has no rows, only column names" if columns else "table: is empty; it must have"
    )
    refuse(pd.DataFrame(columns), message)


def test_errors_name_the_frame_of_items(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": [1, 2], "piece": [3, 4]})
    items = pd.DataFrame({"nr": [3, 4], "title": ["a", "b"]})
    message = "items table: none .* Rename the column of the ids to item_id or 'piece'"
    refuse(frame, message, item_column="piece", items=items)
    described = items.rename(columns={"nr": "piece"})
    config = PrepareConfig(protocol="none", item_column="piece")
    made = prepare(frame, tmp_path / "out", config, items=described)
    assert made.items.titles() == ["a", "b"]


def test_a_frame_without_rows_among_others(tmp_path: Path) -> None:
    frames = [
        pd.DataFrame({"user": [], "item": []}),
        pd.DataFrame({"user": [1, 2], "item": [3, 4]}),
    ]
    assert prepare(frames, tmp_path / "out", protocol="none").manifest.num_users == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (42, "got int"),
        (
            [(1, 2), (1, 3)],
            r"got a list of rows such as \(1, 2\); .*DataFrame\(\.\.\., columns=\['user",
        ),
        ([{"user": 1, "item": 2}], r"got a list of rows such as \{.*: pandas\.DataFrame\(\.\.\.\)"),
        (np.ones((3, 2)), r"got ndarray; make a frame of it: .* columns=\['user_id', 'item_id'\]"),
    ],
)
def test_what_is_no_source_at_all(source: object, message: str) -> None:
    refuse(source, f"source must be a path, .* {message}")


def test_no_files_at_all() -> None:
    refuse([], "there is no source; name at least one file")


def test_everything_filtered_away(write: WriteFile) -> None:
    message = (
        "every row is filtered away: 160 rows read, 0 rows rated too low, 160 rows of inactive "
        "users; the filters are min_rating 2, min_user_interactions 9"
    )
    settings = {"min_rating": 2.0, "min_user_interactions": 9}
    refuse(write(HEADER + ROWS), re.escape(message), **settings)


def test_without_a_memory_limit_half_of_the_memory_is_one(tmp_path: Path) -> None:
    limits = []
    for asked in (None, "700MiB"):
        with DuckDBEngine(tmp_path / "scratch", asked, None) as engine:
            (limit,) = engine.row("SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'")
            number, unit = limit.split()
            limits.append(float(number) * {"MiB": 1, "GiB": 1024}[unit])
    half_of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**21
    assert 0 < limits[0] <= half_of_machine
    assert limits[1] == pytest.approx(400, abs=1)


def test_too_little_memory(write: WriteFile) -> None:
    rows = "".join(f"{n % 5000},{n}\n" for n in range(200_000))
    source = write("user_id,item_id\n" + rows)
    refuse(source, "memory_limit 1MB is too little", SettingError, memory_limit="1MB")


def test_settings_in_the_place_of_the_output(write: WriteFile) -> None:
    message = r"output is PrepareConfig\(.*; it must be a path"
    with pytest.raises(SettingError, match=message):
        prepare(write(HEADER + ROWS), PrepareConfig())  # type: ignore[arg-type]


def test_some_memory_is_taken_even_if_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.data.preparation.duckdb_engine.free_bytes", lambda: 100_000)
    with DuckDBEngine(tmp_path / "scratch", None, 1) as engine:
        assert engine.row("SELECT 1") == (1,)


def test_ids_in_the_index_of_a_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "stars": [1, 2]})
    advice = r"Its index has 'user'.*: frame\.reset_index\(\) makes columns of it"
    series = frame.set_index(["user", "item"])["stars"]
    for source, message in (
        (frame.set_index("user"), f"looks like user_id.*{advice}"),
        (frame.set_index(["user", "item"]), f"looks like user_id.*{advice}"),
        (series, r"got Series; its reset_index\(\) makes a frame of it"),
    ):
        refuse(source, message)
    prepare(series.reset_index(), tmp_path / "out", protocol="none")
