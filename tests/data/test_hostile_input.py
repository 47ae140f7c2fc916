"""Any file, with any content, gives its rows or one clear error."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_targets import (
    HEADER,
    ITEMS,
    ROWS,
    SEPARATOR,
    TARGETS,
    attack,
    check_whole,
    corpus,
)
from foretaste.data import (
    GivenSplit,
    IdTable,
    PrepareConfig,
    open_dataset,
    open_or_prepare,
    prepare,
)
from foretaste.data.config import FileFormat
from foretaste.data.request import PrepareRequest
from foretaste.data.sources import open_sources
from foretaste.errors import DatasetError, InputError
from foretaste.recommend import read_ids
from tests.data.conftest import WriteFile, refuse
from tests.messages import Named, raises, whole

INT64 = (-(2**63), 2**63 - 1)

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=12
)
numbers = st.one_of(*(st.integers(edge - 3, edge + 3) for edge in (*INT64, 0)))
few = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_what_the_fuzzer_begins_with(target: str) -> None:
    for case in corpus(target):
        attack(target, case)


@few
@given(st.sampled_from(["csv", "items", "ids", "packed"]), st.binary(max_size=200))
def test_bytes_of_any_kind(target: str, data: bytes) -> None:
    attack(target, data)


@few
@given(st.integers(0, 6), st.lists(st.lists(texts | st.just(""), max_size=5), max_size=5))
def test_rows_of_any_kind(kind: int, rows: list[list[str]]) -> None:
    attack("csv", bytes([kind]) + f"{HEADER}{ROWS}{as_csv(rows)}".encode())


@few
@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_candidates_of_any_kind(train: list[str], candidates: list[str]) -> None:
    rated = "".join(f"{user}\t1\t5\t1\n" for user in ["0", *train])
    lines = "(0,2)\t1\n" + "\n".join(candidates)
    files = (rated + "1\t2\t5\t1\n", "0\t2\t5\t1\n", lines)
    attack("ncf", SEPARATOR.join(file.encode() for file in files))


@few
@given(
    ids=st.lists(texts | numbers.map(str), min_size=1, max_size=8, unique=True),
    delimiter=st.sampled_from([",", "\t", ";", "|", " ", "\x01", "€"]),
)
@example(
    ids=["\u202e1", "1\u0301", "\u200d", "a\nb", '"', '""', ",", " ", "NULL", "nan", "007"],
    delimiter=",",
)
def test_ids_come_back_as_they_were(ids: list[str], delimiter: str, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("ids")
    rows = as_csv([["user_id", "item_id"], *([value, value] for value in ids)], delimiter)
    (folder / "raw.csv").write_bytes(rows.encode())
    config = PrepareConfig(protocol="none", delimiter=delimiter)
    dataset = prepare(folder / "raw.csv", folder / "out", config)
    fits = all(
        re.fullmatch("0|-?[1-9][0-9]*", text) and INT64[0] <= int(text) <= INT64[1] for text in ids
    )
    expected = [int(text) for text in ids] if fits else ids
    assert sorted(map(repr, dataset.users.ids())) == sorted(map(repr, expected))
    assert sorted(map(repr, dataset.items.ids())) == sorted(map(repr, expected))
    check_whole(open_dataset(folder / "out"))


def as_csv(rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (HEADER + ROWS + "x" * 10_000_000 + ",1,1,1\n", (18, 2)),
        (",".join(map(str, range(1_000_000))) + "\n1,2\n", (1, 2)),
        ("user_id,item_id," + "y" * 1_000_000 + "\n1,2\n3,4,5\n", (2, 3)),
        ("user_id,item_id,a\0b\n1,2,3\n", (1, "a\\x00b")),
        (f"{HEADER}{ROWS}1,1,1,{'z' * 1_000_000}\n", ("1,000,000",)),
    ],
    ids=range(5),
)  # fmt: skip
def test_sizes_nobody_expects(write: WriteFile, content: str, named: Named) -> None:
    refuse(write(content), *named)


@pytest.mark.parametrize("end", ["", "\n", "\n1,1,1,1\n"])
def test_a_line_that_fills_a_buffer(write: WriteFile, end: str) -> None:
    source = write(HEADER + ROWS + "\0" * 33_000_000 + end)
    refuse(source, "raw.csv", 18, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ends", "encoding"),
    [
        ("raw.csv.gz", "\n", "utf-8"),
        ("raw.csv", "\r\n", "utf-8"),
        ("raw.csv", "\r", "utf-8"),
        ("raw.csv", "\n", "utf-16"),
    ],
)
def test_a_last_line_of_which_a_buffer_holds_the_end_alone(
    write: WriteFile, name: str, ends: str, encoding: str
) -> None:
    row = f"1,1,{'x' * 994}{ends}"
    num_rows = 31_999_900 // len(row)
    text = f"user_id,item_id,review{ends}" + row * num_rows + "\0" * 4_200_000
    content = text.encode(encoding)
    packed = gzip.compress(content, 1) if name.endswith(".gz") else content
    refuse(write(packed, name), num_rows + 2, 2, encoding=encoding)


def test_lines_of_any_file_may_not_fill_a_buffer(write: WriteFile, tmp_path: Path) -> None:
    source, long = write(HEADER + ROWS), "1" * 33_000_000
    items = write(ITEMS + long, "items.csv")
    refuse(source, items, 5, 2, items=items)
    write("0\t1\t5\t1\n1\t2\t5\t1\n1\t1\t5\t1\n", "x.train.rating")
    write("0\t2\t5\t1\n", "x.test.rating")
    write("(0,2)\t1\n" + long, "x.test.negative")
    refuse(tmp_path / "x.train.rating", tmp_path / "x.test.negative", 2, 2)


def test_long_lines_that_are_short_enough(write: WriteFile, tmp_path: Path) -> None:
    rows = "".join(f"{user},1,{'x' * 1_999_000}\n" for user in range(20))
    source = write("user_id,item_id,review\n" + rows.rstrip("\n"))
    prepared = prepare(source, tmp_path / "out", PrepareConfig(protocol="none"))
    assert prepared.manifest.num_users == 20


def test_names_are_no_sql(write: WriteFile, tmp_path: Path) -> None:
    name = 'item"); DROP TABLE raw; --'
    quoted = '"' + name.replace('"', '""') + '"'
    source = write(f"user_id,{quoted}\n1,'; DROP TABLE raw\n")
    items = write(f'{quoted},"title""\') FROM x"\n\'; DROP TABLE raw,x\n', "items.csv")
    config = PrepareConfig(item_column=name, delimiter=",", protocol="none")
    dataset = prepare(source, tmp_path / "out", config, items=items)
    assert dataset.items.ids() == ["'; DROP TABLE raw"]


@pytest.mark.parametrize(
    "name",
    ["it's.csv", 'say "x".csv', "*.csv", "a?[b]!.csv", "two\nlines.csv", "{x}.csv", "\u202e.csv",
     "-.csv", "~.csv", "%s.csv", "back\\slash.csv"],
)  # fmt: skip
def test_files_of_any_name(write: WriteFile, tmp_path: Path, name: str) -> None:
    write("user_id,item_id\n8,8\n", "other.csv")
    prepared = prepare(write(HEADER + ROWS, name), tmp_path / f"{name}-out")
    assert prepared.users.ids() == [0, 1, 2, 3]
    check_whole(open_dataset(tmp_path / f"{name}-out"))


PLACE = re.compile("^.*?(?=: | is )")


@pytest.mark.parametrize("name", ["a\0b.csv", "x" * 5000 + ".csv", "x" * 5000])
def test_names_that_no_file_has(tmp_path: Path, name: str) -> None:
    refuse(tmp_path / name, PLACE)
    with raises(InputError, PLACE):
        open_or_prepare(PrepareRequest.of(tmp_path / name, root=tmp_path / "datasets"))
    with raises(DatasetError, PLACE):
        open_dataset(tmp_path / name)
    with raises(InputError, PLACE):
        read_ids(tmp_path / name, IdTable.from_ids("item", [1]))


@pytest.mark.parametrize("name", ["raw\udcff.csv", "raw\udcff.parquet"])
def test_names_that_are_no_text(write: WriteFile, name: str) -> None:
    refuse(write(HEADER + ROWS, name), PLACE)


@pytest.mark.parametrize("name", ["a\0b", "a\udcffb", "x" * 5000])
def test_outputs_that_cannot_be(write: WriteFile, tmp_path: Path, name: str) -> None:
    source = write(HEADER + ROWS)
    with raises(DatasetError, PLACE):
        prepare(source, tmp_path / name)
    assert list(tmp_path.iterdir()) == [source]


def test_a_long_name_still_names_a_dataset(write: WriteFile, tmp_path: Path) -> None:
    source = write(HEADER + ROWS, "é" * 120 + ".csv")
    assert open_or_prepare(
        PrepareRequest.of(source, root=tmp_path / "datasets")
    ).path.name.startswith("éé")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, loop, device])
@pytest.mark.parametrize("name", ["raw.csv", "raw.parquet"])
def test_what_is_no_file_is_never_waited_for(
    write: WriteFile, tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    odd, sound = tmp_path / name, write(HEADER + ROWS, "sound.csv")
    make(odd)
    nowhere = "there is no such file|is a link that leads nowhere"
    kind = whole(nowhere if make is loop else "neither a file nor a folder but a pipe")
    split = GivenSplit(train=sound, test=sound, test_candidates=odd)
    for source in (odd, [sound, odd], GivenSplit(train=sound, test=odd), split):
        refuse(source, kind)
    refuse(sound, kind, items=odd)
    ids_kind = nowhere if make is loop else "is a directory, a pipe or a device"
    with raises(InputError, whole(ids_kind)):
        read_ids(odd, IdTable.from_ids("item", [1]))


def test_a_folder_that_contains_itself(write: WriteFile, tmp_path: Path) -> None:
    folder = write(HEADER + ROWS, "folder/raw.csv").parent
    (folder / "self").symlink_to(folder)
    assert prepare(folder, tmp_path / "out").manifest.counts["num_rows_read"] == 16


@pytest.mark.parametrize("step", ["checksum", "read"])
def test_a_file_that_changes_while_it_is_read(write: WriteFile, tmp_path: Path, step: str) -> None:
    source = write(HEADER + ROWS)

    def change(named: str) -> None:
        if named == step:
            write(HEADER + ROWS + "9,9,1,1\n")

    with raises(InputError, "raw.csv"):
        prepare(source, tmp_path / "out", progress=change)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (Path.unlink, ("raw.csv", os.strerror(errno.ENOENT))),
        (lambda source: source.write_text(""), ("raw.csv",)),
    ],
)
def test_a_line_is_looked_for_only_in_the_file_that_was_read(
    change: Callable[[Path], object], named: Named, write: WriteFile
) -> None:
    source = write(HEADER + ROWS)
    (opened,) = open_sources(source, FileFormat())
    change(source)
    with raises(InputError, *named):
        opened.place(1, 1)
