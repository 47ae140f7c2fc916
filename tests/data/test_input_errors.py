"""Errors in an input name its file, line and an example."""

from __future__ import annotations

import os
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
from tests.messages import Named, raises

HEADER = "user_id,item_id,rating,timestamp\n"
ROWS = "".join(f"{user},{item},4.0,{user + item}\n" for user in range(20) for item in range(8))


@pytest.mark.parametrize(
    ("bad_row", "named"),
    [
        (b"1,2,3\n", ("raw.csv", 162, 4, 3, "1,2,3")),
        (b"1,2,3,4,5\n", ("raw.csv", 162, 4, 5, "1,2,3,4,5")),
        (b'1,"2,3,4\n', ("raw.csv", 162)),
        (b"1,\xff\xfe,3,4\n", ("raw.csv", 162)),
        (b"1,2,3,soon\n", (162, "soon")),
        (b"1,2,3,\n", ("raw.csv", 162, "timestamp", 1, "--protocol held-out-users")),
        (b"1,2,3,nan\n", ("raw.csv", 162, "nan")),
        (b",2,3,4\n", ("raw.csv", 162, "user_id", "user_id", 1)),
        (b'1,"",3,4\n', ("raw.csv", 162, "item_id", "item_id", 1)),
        (b"1,2\x00,3,4\n", ("raw.csv", 162, "item_id", "2\\x00")),
    ],
)  # fmt: skip
def test_malformed_rows(write: WriteFile, bad_row: bytes, named: Named) -> None:
    source = write(HEADER.encode() + ROWS.encode() + bad_row + b"1,2,3,4\n")
    refuse(source, *named)


@pytest.mark.parametrize(
    ("rating", "named"),
    [
        ("good", (162, "good", "rating", 1)),
        ("nan", (162, "nan")),
        ("inf", (162, "inf")),
        ("", (162,)),
        ('"0,5"', (162, "0,5", 1, "0.5")),
    ],
)
def test_ratings_are_checked_if_a_rule_reads_them(
    write: WriteFile, tmp_path: Path, rating: str, named: Named
) -> None:
    source = write(f"{HEADER}{ROWS}1,2,{rating},4\n")
    refuse(source, *named, min_rating=3.0)
    assert prepare(source, tmp_path / "out").manifest.counts["num_rows_read"] == 161


@pytest.mark.parametrize("protocol", ["held-out-users", "none"])
def test_times_are_not_read_if_the_protocol_does_not_look_at_them(
    write: WriteFile, tmp_path: Path, protocol: Any
) -> None:
    source = write("user_id,item_id,date\n" + ROWS.replace(",4.0,", ",31/12/").replace("\n", ",\n"))
    prepare(source, tmp_path / "out", PrepareConfig(protocol=protocol))


def test_mixed_line_endings(write: WriteFile) -> None:
    source = write("user_id,item_id\n1,2\r\n1,3\n1,4\r\n")
    refuse(source, "raw.csv")


def test_lines_are_counted_through_quotes_and_blank_lines(write: WriteFile) -> None:
    source = write('user_id,item_id,note\n1,2,"two\nlines"\n\n,3,x\n')
    refuse(source, "raw.csv", 5, "user_id")


def test_the_file_of_several_is_named(write: WriteFile, tmp_path: Path) -> None:
    write(HEADER + ROWS, "a.csv")
    write(HEADER + "1,2,3,4\n1,2,x\n", "b.csv")
    refuse(tmp_path / "*.csv", "b.csv", 3, 4, 3)


def test_a_value_wrong_in_one_of_several_files(write: WriteFile) -> None:
    first = write(HEADER + ROWS, "a.csv")
    second = write("timestamp,item_id,user_id\n1,2,3\nnever,2,3\n", "b.csv")
    refuse([first, second], "b.csv", 3, "never")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ("raw.csv",)),
        (HEADER.encode(), ("raw.csv",)),
        (b"a,b\n1,2\n",
         ("raw.csv", "a", "b", "--user-column", "--item-column", "--time-column")),
        (b"user,b,time\n1,2,3\n", ("item_id", "user", "b", "time", "--item-column")),
        (b"196,242,3\n1,2,3\n", ("--columns",)),
        (b"ana,nocturne\nben,bolero\n", ("--columns",)),
        (b"user_id,userId,item\n1,2,3\n", ("user_id", "userId", "user_id")),
        (b"user,item,item\n1,2,3\n", ("raw.csv", "item")),
        (b"user,it\xffem\n1,2\n", ("raw.csv", 1)),
    ],
)  # fmt: skip
def test_files_without_usable_columns(write: WriteFile, content: bytes, named: Named) -> None:
    refuse(write(content), *named)


def test_columns_in_another_language_are_named_at_once(write: WriteFile) -> None:
    source = write("Bestellnummer;Kundennummer;Artikelnummer\nB1;ana;x\n")
    columns = ("Bestellnummer", "Kundennummer", "Artikelnummer")
    asked = {"user_column": "kundennummer", "item_column": "artikelnummer"}
    options = ("kundennummer", "--user-column", "artikelnummer", "--item-column")
    refuse(source, *options, *columns, "Kundennummer", "Artikelnummer", **asked)
    del asked["item_column"]
    refuse(source, *columns, "Kundennummer", "item_id", "--item-column", **asked)


def test_a_column_asked_for_of_a_file_without_names(write: WriteFile) -> None:
    refuse(write("alice,42,5\n"), "user", "alice", 42, 5, user_column="user")


@pytest.mark.parametrize("content", [HEADER + ROWS, "listener,track,id2,x-3\n1,2,3,4\n"])
def test_a_line_of_names_is_not_taken_for_data(
    write: WriteFile, tmp_path: Path, content: str
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(write(content), tmp_path / "out", PrepareConfig(user_column="buyer"))
    assert "first line" not in str(caught.value)


def test_only_text_has_a_first_line() -> None:
    """A frame's columns may be numbers, and --columns is not for frames."""
    refuse(pa.table({"0": ["ana"], "1": [42]}), "--time-column")


def test_one_column_cannot_be_two_things(write: WriteFile) -> None:
    named = ("user_column", "item_column", "item_id")
    refuse(write(HEADER + ROWS), *named, error=SettingError, user_column="item_id")


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("absent.csv", ("absent.csv",)),
        ("*.tsv", ("*.tsv",)),
        ("datasets", ("datasets",)),
    ],
)
def test_files_that_are_not_there(tmp_path: Path, name: str, named: Named) -> None:
    (tmp_path / "datasets").mkdir()
    refuse(tmp_path / name, *named)


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.array([1.0, 2.5]), ("user_id", "2.5", 1)),
        (
            pa.array([b"a", b"b"]),
            ("user_id", "user_id"),
        ),
        (pa.array([1, None]), ("raw.parquet", "user_id", "user_id", 1)),
    ],
)
def test_parquet_columns_of_the_wrong_type(tmp_path: Path, column: pa.Array, named: Named) -> None:
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"user_id": column, "item_id": [1, 2]}), path)
    refuse(path, *named)


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"user_id": [1], "item_id": [1], "Item_ID": [2]}), path)
    refuse(path, "item_id", "Item_ID", "item_id")
    made = prepare(path, tmp_path / "out", protocol="none", item_column="Item_ID")
    assert made.items.ids() == [2]


@pytest.mark.parametrize("columns", [{}, {"user_id": [], "item_id": []}])
def test_frames_without_anything_in_them(columns: dict[str, list[int]]) -> None:
    refuse(pd.DataFrame(columns), "table", "no rows" if columns else "empty")


def test_errors_name_the_frame_of_items(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": [1, 2], "piece": [3, 4]})
    items = pd.DataFrame({"nr": [3, 4], "title": ["a", "b"]})
    refuse(frame, "item_id", "piece", item_column="piece", items=items)
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
    ("source", "named"),
    [
        (42, ("got int",)),
        (
            [(1, 2), (1, 3)],
            (1, 2, "DataFrame"),
        ),
        ([{"user": 1, "item": 2}], ("DataFrame",)),
        (np.ones((3, 2)), ("user_id", "item_id")),
    ],
)
def test_what_is_no_source_at_all(source: object, named: Named) -> None:
    refuse(source, *named)


def test_no_files_at_all() -> None:
    refuse([])


def test_everything_filtered_away(write: WriteFile) -> None:
    settings = {"min_rating": 2.0, "min_user_interactions": 9}
    refuse(write(HEADER + ROWS), 160, 0, 160, "min_rating 2", "min_user_interactions 9", **settings)


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
    refuse(source, "memory_limit", error=SettingError, memory_limit="1MB")


def test_settings_in_the_place_of_the_output(write: WriteFile) -> None:
    with raises(SettingError, "output", "PrepareConfig("):
        prepare(write(HEADER + ROWS), PrepareConfig())  # type: ignore[arg-type]


def test_some_memory_is_taken_even_if_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.data.preparation.duckdb_engine.free_bytes", lambda: 100_000)
    with DuckDBEngine(tmp_path / "scratch", None, 1) as engine:
        assert engine.row("SELECT 1") == (1,)


def test_ids_in_the_index_of_a_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "stars": [1, 2]})
    series = frame.set_index(["user", "item"])["stars"]
    for source, *named in (
        (frame.set_index("user"), "user_id", "user", "frame.reset_index()"),
        (frame.set_index(["user", "item"]), "user_id", "user", "frame.reset_index()"),
        (series, "Series", "reset_index()"),
    ):
        refuse(source, *named)
    prepare(series.reset_index(), tmp_path / "out", protocol="none")
