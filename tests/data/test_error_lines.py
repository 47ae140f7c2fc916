"""Every kind of error names the last line of its row, in every form of a file."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.data.conftest import WriteFile, refuse

HEADER = "user_id,item_id,plays,timestamp\n"
GOOD = "".join(f"{user},{user % 7},2,{1_000_000_000 + user}\n" for user in range(40))

# The bad row, and its problem in the message. A later row is bad too: the message names the first.
KINDS: dict[str, tuple[str, str]] = {
    "missing": ("41,1,2\n", "expected 4 fields, found 3"),
    "surplus": ("41,1,2,3,5\n", "expected 4 fields, found 5"),
    "unquoted": ('"41"x,1,2,3\n', "',' expected after '\"'; --quote none takes quotes as they are"),
    "backslash": (r'"4\"1",1,2,3' + "\n", r'--quote backslash reads \\" as a quote'),
    "overlong": ("9" * 2_100_000 + ",1,2,3\n", "is longer than 2 MB"),
    "no number": ("41,1,2,soon\n", "time 'soon' does not fit"),
    "empty": ("41,,2,3\n", "item_id is empty"),
    "underscores": ("41,1,2,1_000_x\n", "time '1_000_x' does not fit"),
    "NUL": ("4\0,1,2,3\n", r"user_id '4\\x00' holds a NUL character"),
    "long id": ("é" * 513 + ",1,2,3\n", "has 1,026 bytes; an id has at most 1,024"),
    "no time": ("41,1,2,-9223372036854775808\n", "is no time but the missing value of NumPy"),
    "no weight": ("41,1,none,3\n", "weight 'none' is not a finite number"),
}
OPEN = '"41,1,2,3\n'


def plain(text: str) -> tuple[str, bytes]:
    return "raw.csv", text.encode()


FORMS: dict[str, tuple[Callable[[str], tuple[str, bytes]], str]] = {
    "plain": (plain, "utf-8"),
    "gz": (lambda text: ("raw.csv.gz", gzip.compress(text.encode(), 1)), "utf-8"),
    "zst": (lambda text: ("raw.csv.zst", pa.compress(text.encode(), "zstd", asbytes=True)), ""),
    "latin-1": (lambda text: ("raw.csv", ("é" + text).encode("latin-1")), "latin-1"),
    "cp1252": (lambda text: ("raw.csv", ("€" + text).encode("cp1252")), "cp1252"),
    "UTF-16": (lambda text: ("raw.csv", text.encode("utf-16")), "utf-16"),
    "mark": (lambda text: ("raw.csv", text.encode("utf-8-sig")), "utf-8"),
    "CRLF": (lambda text: plain(text.replace("\n", "\r\n")), "utf-8"),
    "no end": (lambda text: plain(text.removesuffix("\n")), "utf-8"),
}  # fmt: skip


def check(write: WriteFile, form: str, text: str, line: int, problem: str) -> None:
    encode, encoding = FORMS[form]
    name, content = encode(text)
    settings = {
        "user_column": f"{'é' if form == 'latin-1' else '€' if form == 'cp1252' else ''}user_id"
    }
    refuse(
        write(content, name), rf"{re.escape(name)}, line {line}: .*{problem}",
        encoding=encoding or "utf-8", weight_column="plays", **settings,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_the_line_is_named(write: WriteFile, form: str, kind: str) -> None:
    row, problem = KINDS[kind]
    check(write, form, HEADER + GOOD + row, 42, problem)


@pytest.mark.parametrize("kind", KINDS)
def test_behind_quoted_line_breaks_and_blank_lines(write: WriteFile, kind: str) -> None:
    row, problem = KINDS[kind]
    broken = GOOD.replace("39,4,", '"3\n9",4,') + "\n"
    check(write, "plain", HEADER + broken + row + GOOD, 44, problem)


@pytest.mark.parametrize("form", ["plain", "gz", "zst", "latin-1", "cp1252", "UTF-16", "CRLF"])
def test_a_quote_that_is_never_closed(write: WriteFile, form: str) -> None:
    check(write, form, HEADER + GOOD + OPEN + GOOD, 42, "a quote is opened and never closed")


@pytest.mark.parametrize(
    ("encoding", "bad"), [("utf-8", b"\xe9"), ("latin-1", b"\x93"), ("cp1252", b"\x81")]
)
def test_another_encoding(write: WriteFile, encoding: str, bad: bytes) -> None:
    source = write(f"{HEADER}{GOOD}4".encode() + bad + b",1,2,3\n")
    refuse(source, r"raw\.csv, line 42: (is not|holds bytes that)", encoding=encoding)


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_of_two_files(write: WriteFile, kind: str) -> None:
    row, problem = KINDS[kind]
    sources = [write(HEADER + GOOD, "a.csv"), write(HEADER + GOOD + row, "b.csv")]
    refuse(sources, rf"b\.csv, line 42: .*{problem}", weight_column="plays")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_far_into_a_file(write: WriteFile, kind: str) -> None:
    row, problem = KINDS[kind]
    text = HEADER + GOOD * 50_000 + row + GOOD
    refuse(write(text), rf"raw\.csv, line 2000002: .*{problem}", weight_column="plays")


def test_a_file_of_bad_rows_is_refused_at_its_first(write: WriteFile) -> None:
    refuse(write(HEADER + "1,2\n" * 500_000), r"raw\.csv, line 2: expected 4 fields, found 2")
