"""Files with a user and all of their items on each line give the same dataset as pairs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foretaste.data import Dataset, GivenSplit, PrepareConfig, prepare
from foretaste.errors import SettingError
from tests.data.conftest import WriteFile, refuse
from tests.data.test_formats import zstd
from tests.data.test_protocols import pairs_of
from tests.messages import raises

LISTS = {
    "7": ["10", "11", "12", "11"],
    "8": ["12", "10", "13"],
    "9": [],
    "11": ["13"],
    "12": ["10", "11", "12", "13"],
}
SHAPES: dict[str, tuple[str, str]] = {
    "blanks": (" ", " "),
    "two blanks": ("  ", "   "),
    "tabs": ("\t", "\t"),
    "commas": (",", ","),
    "commas and blanks": (", ", " , "),
    "a tab, then blanks": ("\t", " "),
    "a colon's comma": (",", " "),
}


def text_of(lists: dict[str, list[str]], first: str = " ", others: str = " ") -> str:
    return "".join(f"{user}{first}{others.join(items)}\n" for user, items in lists.items())


def pairs(lists: dict[str, list[str]]) -> pa.Table:
    """The same interactions as a table with a rank."""
    rows = [
        {"user_id": int(user), "item_id": int(item), "time_rank": place}
        for user, items in lists.items()
        for place, item in enumerate(items)
    ]
    return pa.Table.from_pylist(rows)


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(pairs(LISTS), tmp_path_factory.mktemp("pairs") / "out").manifest.digest


def prepared(source: Any, tmp_path: Path, **settings: Any) -> Dataset:
    return prepare(source, tmp_path / "out", PrepareConfig(layout="lists", **settings))


@pytest.mark.parametrize("shape", SHAPES)
def test_separators(shape: str, digest: str, write: WriteFile, tmp_path: Path) -> None:
    dataset = prepared(write(text_of(LISTS, *SHAPES[shape]), "train.txt"), tmp_path)
    assert dataset.manifest.digest == digest
    assert dataset.manifest.counts["num_users_without_items"] == 1
    assert dataset.manifest.counts["num_repeated_pairs"] == 1


ENCODED: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "gz": (gzip.compress(text_of(LISTS).encode()), "lists.txt.gz", {}),
    "zst": (zstd(text_of(LISTS).encode()), "lists.dat.zst", {}),
    "dos lines, a mark": (
        b"\xef\xbb\xbf" + text_of(LISTS).replace("\n", "\r\n").encode(), "lists.csv", {},
    ),
    "no last line end": (text_of(LISTS).rstrip().encode(), "lists.csv", {}),
    "blank lines": (b"\n" + text_of(LISTS).replace("\n", "\n \n,,\n").encode(), "a.txt", {}),
    "commas to a width": (text_of(LISTS, ",", ",").replace("\n", ",,,\n").encode(), "a.csv", {}),
    "blanks before and after": (
        re.sub("^|$", " ", text_of(LISTS).rstrip(), flags=re.MULTILINE).encode(), "a.txt", {},
    ),
    "utf-16": (text_of(LISTS).encode("utf-16"), "a.txt", {"encoding": "utf-16"}),
    "cp1252": (text_of(LISTS).encode(), "a.txt", {"encoding": "cp1252"}),
    "no ending": (text_of(LISTS).encode(), "lists", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODED)
def test_files(name: str, digest: str, write: WriteFile, tmp_path: Path) -> None:
    content, file, settings = ENCODED[name]
    assert prepared(write(content, file), tmp_path, **settings).manifest.digest == digest


@pytest.mark.parametrize("source", ["parts", "parts/*.txt"])
def test_folders_and_patterns(source: str, digest: str, write: WriteFile, tmp_path: Path) -> None:
    for user, items in LISTS.items():
        write(text_of({user: items}), f"parts/{user}.txt")
    assert prepared(tmp_path / source, tmp_path).manifest.digest == digest


def test_ids_of_text(write: WriteFile, tmp_path: Path) -> None:
    dataset = prepared(write("ana bolero\nben::x bolero\tclair|é\n"), tmp_path, protocol="none")
    assert dataset.manifest.id_types == {"user_id": "text", "item_id": "text"}
    assert pairs_of(dataset, "train") == {
        ("ana", "bolero"), ("ben::x", "bolero"), ("ben::x", "clair|é"),
    }  # fmt: skip


def test_a_given_split(write: WriteFile, tmp_path: Path) -> None:
    """LightGCN publishes two files with the same users."""
    train = write("0 1 2 3\n1 2 4\n2\n", "train.txt")
    test = write("0 4\n1 1 3\n", "test.txt")
    dataset = prepared(GivenSplit(train=train, test=test), tmp_path)
    assert pairs_of(dataset, "train") == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)}
    assert pairs_of(dataset, "test") == {(0, 4), (1, 1), (1, 3)}
    assert dataset.manifest.counts["num_users_without_items"] == 1


@pytest.mark.slow
def test_a_long_line(write: WriteFile, tmp_path: Path) -> None:
    """The first line, a line between others, and the last, longer than a buffer of DuckDB."""
    many = [f"{number:0100}" for number in range(30_000)]
    users = {"1": many, "2": many[:3], "3": many[::-1], "4": many[:2], "5": many * 11}
    dataset = prepared(write(text_of(users)), tmp_path, memory_limit="2GB")
    counts = dataset.manifest.counts
    assert counts["num_rows_read"] == 13 * 30_000 + 5
    assert counts["num_repeated_pairs"] == 10 * 30_000
    newest = {(user, item) for user, item in pairs_of(dataset, "test") if user in (1, 3, 5)}
    assert newest == {(1, many[-1]), (3, many[0]), (5, many[-1])}


REFUSED = {
    "two lines of a user": (
        "7 1 2\n8 1\n7 3\n8 2\n",
        ("raw.csv", 1, "raw.csv", 3, 7, 2, "awk"),
    ),
    "no users": (
        "7,1,2\n,1,2\n\t3\n",
        ("raw.csv", 2, "user_id", 3, "--empty-ids drop"),
    ),
    "an item in between": ("7,1,2\n8,1, ,2\n", ("raw.csv", 2, "item_id")),
    "nobody has items": ("7\n8\n", ("raw.csv",)),
    "a NUL character": ("7 1 2\n8 a\0b\n", ("raw.csv", 2, "item_id", r"a\x00b")),
    "no text": (b"7 1\n8 \xff\n", ("raw.csv", 2, "UTF-8")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_of_lists_that_are_refused(name: str, write: WriteFile) -> None:
    content, named = REFUSED[name]
    refuse(write(content), *named, config=PrepareConfig(layout="lists"))


def test_two_files_with_a_user(write: WriteFile, tmp_path: Path) -> None:
    write("7 1 2\n", "parts/a.txt")
    write("8 1\n\n7 3\n", "parts/b.txt.gz".removesuffix(".gz"))
    refuse(tmp_path / "parts", "a.txt", 1, "b.txt", 3, 7, config=PrepareConfig(layout="lists"))


def test_empty_ids_are_dropped(write: WriteFile, tmp_path: Path) -> None:
    source = write("7,1,,2\n,1,2\n8,1\n,4\n")
    dataset = prepared(source, tmp_path, empty_ids="drop", protocol="none")
    assert pairs_of(dataset, "train") == {(7, 1), (7, 2), (8, 1)}
    assert dataset.manifest.counts["num_rows_with_an_empty_id"] == 4
    source = write("7 1 2\nguest 1 2\n8 1 NA\nguest 4\nguest\n")
    dataset = prepare(
        source, tmp_path / "other", layout="lists", empty_ids="drop",
        empty_values=("guest", "NA"), protocol="none",
    )  # fmt: skip
    assert pairs_of(dataset, "train") == {(7, 1), (7, 2), (8, 1)}
    assert dataset.manifest.counts["num_users_without_items"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"delimiter": ","}, {"columns": ("user", "item")}, {"quote": "none"}, {"user_column": "u"},
        {"rating_column": "r"}, {"time_column": "t"}, {"time_format": "%Y"}, {"min_rating": 4.0},
        {"weight_column": "w"}, {"event_column": "e", "events": ("buy",)}, {"half_life": "90d"},
        {"protocol": "temporal"},
    ],
    ids=lambda settings: next(iter(settings)),
)  # fmt: skip
def test_what_lists_do_not_have(settings: dict[str, Any]) -> None:
    with raises(SettingError, next(iter(settings))):
        PrepareConfig(layout="lists", **settings)


def test_what_is_no_text() -> None:
    lists = {"error": SettingError, "config": PrepareConfig(layout="lists")}
    refuse(pairs(LISTS), "--layout", "table", **lists)
    refuse("ml-1m", "layout", "lists", "ml-1m", **lists)


IDS = {"columns": ("user_id", "item_id")}
BLANKS = {"delimiter": " "}
SHORT = {"columns": ("user_id", "item_id", "-", "-")}
LAYOUT = ("raw.txt", "--layout lists", "layout='lists'")


@pytest.mark.parametrize("settings", [{}, IDS, BLANKS, BLANKS | IDS, BLANKS | SHORT])
@pytest.mark.parametrize("separator", [" ", "\t", ","])
def test_the_layout_is_named(separator: str, settings: dict[str, Any], write: WriteFile) -> None:
    """The files of LightGCN and S3-Rec, and files whose lines have one length by chance."""
    ragged = write(text_of(LISTS, separator, separator), "raw.txt")
    refuse(ragged, *LAYOUT, config=PrepareConfig(**settings))
    words = write("ana bolero clair\nben clair\n".replace(" ", separator), "raw.txt")
    refuse(words, *LAYOUT, config=PrepareConfig(**settings))
    if settings != BLANKS | SHORT or separator != " ":
        equal = write("0 1 2 3\n1 4 5 6\n".replace(" ", separator), "raw.txt")
        refuse(equal, *LAYOUT, config=PrepareConfig(**settings))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("196\t242\t3\t881250949\n186\t302\t3\t891717742\n", {}),
        ("user_id,item_id\n1,2\n1,3,4\n", {}),
        (",,,\n,,\n", IDS),
        ("196\t242\t3\t881250949\n186\t302\t3\t891717742\n", IDS),
        ("1::Toy Story (1995)::Comedy\n2::Jumanji::Drama\n", IDS),
        ("listener,track,at\nana,bolero,2024-01-02 10:00\n", {}),
        ('"a","b, c"\n"d","e"\n', {}),
        ("user_id,thing\n1,two words\n2,three more words\n", {}),
    ],
)
def test_the_layout_is_not_named(text: str, settings: dict[str, Any], write: WriteFile) -> None:
    refuse(write(text, "raw.txt"), config=PrepareConfig(**settings))


def test_pairs_with_a_blank(write: WriteFile, tmp_path: Path) -> None:
    """The files of SASRec are read if the advice of each message is followed."""
    source = write("1 10\n1 11\n2 10\n", "raw.txt")
    refuse(source, "--columns")
    refuse(source, 1, "1 10", **IDS)
    dataset = prepare(source, tmp_path / "out", protocol="none", **BLANKS, **IDS)
    assert pairs_of(dataset, "train") == {(1, 10), (1, 11), (2, 10)}
