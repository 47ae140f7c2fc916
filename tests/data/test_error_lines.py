"""Every kind of error names the last line of its row, in every form of a file."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.data.conftest import WriteFile, refuse
from tests.messages import Named

HEADER = "user_id,item_id,plays,timestamp\n"
GOOD = "".join(f"{user},{user % 7},2,{1_000_000_000 + user}\n" for user in range(40))

# The bad row, and its problem in the message. A later row is bad too: the message names the first.
KINDS: dict[str, tuple[str, *Named]] = {
    "missing": ("41,1,2\n", 4, 3),
    "surplus": ("41,1,2,3,5\n", 4, 5),
    "unquoted": ('"41"x,1,2,3\n', ",", "--quote none"),
    "backslash": (r'"4\"1",1,2,3' + "\n", "--quote backslash"),
    "overlong": ("9" * 2_100_000 + ",1,2,3\n", "2 MB"),
    "no number": ("41,1,2,soon\n", "time", "soon"),
    "empty": ("41,,2,3\n", "item_id"),
    "underscores": ("41,1,2,1_000_x\n", "time", "1_000_x"),
    "NUL": ("4\0,1,2,3\n", "user_id", r"4\x00"),
    "long id": ("é" * 513 + ",1,2,3\n", "1,026", "1,024"),
    "no time": ("41,1,2,-9223372036854775808\n", "-9223372036854775808"),
    "no weight": ("41,1,none,3\n", "weight", "none"),
}
# One kind for each part that counts lines: the parser, the long lines, the checks of values.
COUNTED = ("missing", "overlong", "no number", "empty")
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


def check(write: WriteFile, form: str, text: str, line: int, *problem: object) -> None:
    encode, encoding = FORMS[form]
    name, content = encode(text)
    settings = {
        "user_column": f"{'é' if form == 'latin-1' else '€' if form == 'cp1252' else ''}user_id"
    }
    settings |= {"encoding": encoding or "utf-8", "weight_column": "plays"}
    refuse(write(content, name), name, line, *problem, **settings)


@pytest.mark.parametrize(
    ("form", "kind"),
    [("plain", kind) for kind in KINDS]
    + [(form, kind) for form in FORMS if form != "plain" for kind in COUNTED],
)
def test_the_line_is_named(write: WriteFile, form: str, kind: str) -> None:
    row, *problem = KINDS[kind]
    check(write, form, HEADER + GOOD + row, 42, *problem)


@pytest.mark.parametrize("kind", KINDS)
def test_behind_quoted_line_breaks_and_blank_lines(write: WriteFile, kind: str) -> None:
    row, *problem = KINDS[kind]
    broken = GOOD.replace("39,4,", '"3\n9",4,') + "\n"
    check(write, "plain", HEADER + broken + row + GOOD, 44, *problem)


@pytest.mark.parametrize("form", ["plain", "gz", "zst", "latin-1", "cp1252", "UTF-16", "CRLF"])
def test_a_quote_that_is_never_closed(write: WriteFile, form: str) -> None:
    check(write, form, HEADER + GOOD + OPEN + GOOD, 42)


@pytest.mark.parametrize(
    ("encoding", "bad"), [("utf-8", b"\xe9"), ("latin-1", b"\x93"), ("cp1252", b"\x81")]
)
def test_another_encoding(write: WriteFile, encoding: str, bad: bytes) -> None:
    source = write(f"{HEADER}{GOOD}4".encode() + bad + b",1,2,3\n")
    refuse(source, "raw.csv", 42, encoding=encoding)


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_of_two_files(write: WriteFile, kind: str) -> None:
    row, *problem = KINDS[kind]
    sources = [write(HEADER + GOOD, "a.csv"), write(HEADER + GOOD + row, "b.csv")]
    refuse(sources, "b.csv", 42, *problem, weight_column="plays")


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNTED)
def test_far_into_a_file(write: WriteFile, kind: str) -> None:
    row, *problem = KINDS[kind]
    long = "".join(f"{user},{user % 7},{2:.90f},{1_000_000_000 + user}\n" for user in range(40))
    text = HEADER + long * 10_000 + row + GOOD
    refuse(write(text), "raw.csv", 400002, *problem, weight_column="plays")


def test_a_file_of_bad_rows_is_refused_at_its_first(write: WriteFile) -> None:
    refuse(write(HEADER + "1,2\n" * 500_000), "raw.csv", 2, 4, 2)
