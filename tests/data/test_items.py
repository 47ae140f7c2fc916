"""Files of items: how their format is found, and the refused files with a command that writes them
again."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, GivenSplit, PairsConfig, PrepareConfig, prepare
from foretaste.data.preparation import read_items
from foretaste.errors import InputError, SettingError
from tests.data.conftest import WriteFile
from tests.messages import Named, raises

NONE: dict[str, Any] = {"protocol": "none"}
CAFE = "item_id;title\n1;Café\n2;A, B\n"
HEADERLESS = "1|A, B|01-Jan||0|0|x\n2|Café|01-Feb||0|1|y\n"


@pytest.fixture
def plays(write: WriteFile) -> Path:
    return write("user_id,item_id\n1,1\n2,2\n", "plays.csv")


@pytest.mark.parametrize(
    ("name", "content", "encoding"),
    [
        ("items.csv", CAFE.encode(), "utf-8"),
        ("u.item", CAFE.replace(";", "|").encode(), "utf-8"),
        ("movies.dat", CAFE.replace(";", "::").encode(), "utf-8"),
        ("items", CAFE.replace(";", "\t").encode("utf-8-sig"), "utf-8"),
        ("items.csv", b'item_id,title\r\n1,"Caf\xc3\xa9"\r\n2,"A, B"\r\n', "utf-8"),
        ("items.txt", CAFE.encode("utf-16"), "utf-8"),
        ("item_list.txt", 'item_id title\n1 Café\n2 "A, B"\n'.encode(), "utf-8"),
        ("items.csv", f"sep=;\n{CAFE}".encode(), "utf-8"),
        ("items.csv", CAFE.encode("latin-1"), "latin-1"),
        ("items.csv", CAFE.encode(), "latin-1"),
        ("items.csv", CAFE.encode("utf-8-sig"), "cp1252"),
        ("items.csv", CAFE.encode(), "utf-16"),
        ("items.csv", CAFE.encode("utf-16"), "utf-16"),
        ("items.csv", CAFE.encode("utf-16"), "cp1252"),
        ("items.csv.gz", gzip.compress(CAFE.encode(), mtime=0), "latin-1"),
        ("items.csv.gz", gzip.compress(CAFE.encode("latin-1"), mtime=0), "latin-1"),
        ("items.jsonl", '{"item_id": 1, "title": "Café"}\n{"item_id": 2, "title": "A, B"}'.encode(),
         "cp1252"),
    ],
)  # fmt: skip
def test_a_file_of_items_is_read_without_settings(
    write: WriteFile, tmp_path: Path, name: str, content: bytes, encoding: str
) -> None:
    plays = tmp_path / "plays.csv"
    plays.write_bytes("user_id,item_id\n1,1\n2,2\n".encode(encoding))
    config = PrepareConfig(encoding=encoding, **NONE)
    dataset = prepare(plays, tmp_path / "out", config, items=write(content, name))
    assert dataset.items.titles() == ["Café", "A, B"]
    table = read_items(tmp_path / name, PairsConfig(encoding=encoding, delimiter="::"))
    assert table.column("title").to_pylist() == ["Café", "A, B"]


def test_ascii_alone_does_not_show_utf_8(plays: Path, write: WriteFile, tmp_path: Path) -> None:
    items = write("item_id,title\n1,本\n2,A\n".encode("iso2022_jp"), "items.csv")
    assert items.read_bytes().isascii()
    dataset = prepare(plays, tmp_path / "out", encoding="iso2022_jp", items=items, **NONE)
    assert dataset.items.titles() == ["本", "A"]


@pytest.mark.parametrize(
    ("name", "content", "named", "titles"),
    [
        ("u.item", HEADERLESS.encode("latin-1"), ("The first line",), ["A, B", "Café"]),
        ("u.item", HEADERLESS.encode(), ("The first line",), ["A, B", "Café"]),
        ("movies.dat", HEADERLESS.replace("|", "::").encode("latin-1"), ("may be data",),
         ["A, B", "Café"]),
        ("items.tsv", HEADERLESS.replace("|", "\t").encode(), ("may be data",), ["A, B", "Café"]),
        ("items.csv", b"item_id,title\n1,a,b\n2,c\n", (2, 2, 3),
         [None, "c"]),
        ("items.csv", b'item_id,title\n1,"The \\"Big\\" one"\n2,"A, B"\n', (2,),
         ['The "Big" one', "A, B"]),
        ("items.csv", b'item_id,title,"x\n1,a,b\n2,c,d\n', (1,), ["a", "c"]),
    ],
)  # fmt: skip
def test_a_file_that_is_not_read_is_refused_with_a_command_that_writes_it_again(
    plays: Path, write: WriteFile, tmp_path: Path, name: str, content: bytes, named: Named,
    titles: list[str | None],
) -> None:  # fmt: skip
    with raises(InputError, *named) as caught:
        prepare(plays, tmp_path / "out", items=write(content, name), **NONE)
    assert "--quote" not in str(caught.value)
    command = re.search(r'this writes items\.csv [a-z ]+: python (-c ".*")', str(caught.value))
    assert command is not None
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    subprocess.run(f"{sys.executable} {command[1]}", shell=True, check=True, cwd=folder)
    dataset = prepare(plays, tmp_path / "out", items=folder / "items.csv", **NONE)
    assert dataset.items.titles() == titles


@pytest.mark.parametrize(
    ("interactions", "items", "column"),
    [
        ("user_id,item_id", "item_id,title", None),
        ("user_id,thing", "item_id,title", "thing"),
        ("user_id,thing", "thing,title", "thing"),
        ("user_id,item_id", "org_id,title", "org_id"),
        ("user_id,item_id", "org_id title", "org_id"),
        ("user_id,item_id", "org_id,title,item", "org_id"),
    ],
)
def test_item_column_is_of_both_files_or_of_one(
    write: WriteFile, tmp_path: Path, interactions: str, items: str, column: str | None
) -> None:
    plays = write(f"{interactions}\n1,1\n2,2\n", "plays.csv")
    mark = "," if "," in items else " "
    width = len(items.split(mark))
    rows = [items.split(mark), ["1", "One", "q"][:width], ["2", "Two", "q"][:width]]
    described = write("".join(f"{mark.join(row)}\n" for row in rows), "items.csv")
    dataset = prepare(plays, tmp_path / "out", item_column=column, items=described, **NONE)
    assert dataset.items.titles() == ["One", "Two"]
    test, candidates = (pd.DataFrame({"user_id": [1], interactions[8:]: [item]}) for item in (2, 1))
    split = GivenSplit(train=plays, test=test, test_candidates=candidates)
    dataset = prepare(split, tmp_path / "split", item_column=column, items=described)
    assert dataset.has_candidates("test")


@pytest.mark.parametrize(
    ("items", "column", "named"),
    [
        (
            "org_id,title",
            None,
            ("items.csv", "item_id", "org_id", "--item-column"),
        ),
        (
            "org_id,title",
            "thing",
            ("items.csv", "item_id", "thing"),
        ),
        ("item_id,title", "nowhere", ("plays.csv", "nowhere")),
    ],
)
def test_an_item_column_that_is_not_found(
    write: WriteFile, tmp_path: Path, items: str, column: str | None, named: Named
) -> None:
    name = "thing" if column == "thing" else "item_id"
    plays = write(f"user_id,{name}\n1,1\n2,2\n", "plays.csv")
    described = write(f"{items}\n1,One\n", "items.csv")
    with raises(InputError, *named):
        prepare(plays, tmp_path / "out", item_column=column, items=described, **NONE)


def test_a_note_counts_the_items_that_are_kept(
    plays: Path, write: WriteFile, tmp_path: Path
) -> None:
    """Ten items have several titles; one of these items is kept."""
    rows = "".join(f"{item},a\n{item},b\n{item},b\n" for item in range(2, 12))
    for name, content, note in (
        ("one", rows, "; the most common of several for 1 item"),
        ("none", rows.replace("2,a\n", "2,b\n", 1), ""),
    ):
        items = write(f"item_id,title\n1,One\n{content}", f"{name}.csv")
        dataset = prepare(plays, tmp_path / name, items=items, **NONE)
        assert dataset.manifest.notes["titles"] == f"'title' of {name}.csv, for 2 of 2 items{note}"
        assert dataset.items.titles() == ["One", "b"]


def test_an_encoding_may_be_of_the_items_alone(write: WriteFile, tmp_path: Path) -> None:
    table = pa.table({"user_id": [1, 2], "item_id": [1, 2]})
    pq.write_table(table, tmp_path / "plays.parquet")
    items = write(CAFE.encode("latin-1"), "items.csv")

    def prepared(config: dict[str, Any], items: Path | None) -> Dataset:
        return prepare(tmp_path / "plays.parquet", tmp_path / "out", items=items, **config, **NONE)

    for config, described in (
        ({"encoding": "latin-1"}, None),
        ({"delimiter": ";"}, items),
        ({"encoding": "latin-1", "quote": "none"}, items),
    ):
        with raises(SettingError, "plays.parquet"):
            prepared(config, described)
    assert prepared({"encoding": "latin-1"}, items).items.titles() == ["Café", "A, B"]
