"""The same interactions in every format make the same dataset."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from foretaste.data import GenerateConfig, PrepareConfig, generate, prepare
from foretaste.errors import InputError
from tests.data.conftest import WriteFile, refuse
from tests.messages import raises

COLUMNS = ("user_id", "item_id", "timestamp")
SMALL = GenerateConfig(num_users=120, num_items=60, num_interactions=1_800)

needs = {
    name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")
    for name in ("polars", "scipy")
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Interactions whose user ids are text that every encoding has: café-17."""
    plain = generate(SMALL).table
    users = pa.array([f"caf\xe9-{user}" for user in plain.column("user_id").to_pylist()])
    return plain.set_column(0, "user_id", users).select(list(COLUMNS))


def text_of(table: pa.Table, delimiter: str = ",", *, header: bool = True, end: str = "\n") -> str:
    rows = [delimiter.join(map(str, row.values())) for row in table.to_pylist()]
    names = [delimiter.join(table.column_names)] if header else []
    return end.join([*names, *rows, ""])


def json_of(table: pa.Table) -> str:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist())


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, "zstd", asbytes=True)
    return compressed


@pytest.fixture(scope="module")
def digest(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(table, tmp_path_factory.mktemp("plain") / "out").manifest.digest


TEXTS: dict[str, tuple[Callable[[pa.Table], bytes], str, dict[str, Any]]] = {
    "commas": (lambda table: text_of(table).encode(), "raw.csv", {}),
    "dos lines, a mark": (
        lambda table: b"\xef\xbb\xbf" + text_of(table, end="\r\n").encode(), "raw.csv", {},
    ),
    "tabs": (lambda table: text_of(table, "\t").encode(), "raw.tsv", {}),
    "colons": (lambda table: text_of(table, "::").encode(), "raw.dat", {}),
    "spaces": (lambda table: text_of(table, " ").encode(), "raw.csv", {"delimiter": " "}),
    "arrows": (lambda table: text_of(table, " => ").encode(), "raw.csv", {"delimiter": " => "}),
    "tab, given": (lambda table: text_of(table, "\t").encode(), "raw.tsv", {"delimiter": r"\t"}),
    "headerless": (
        lambda table: text_of(table, header=False).encode(), "raw.csv", {"columns": COLUMNS},
    ),
    "headerless, a mark, colons": (
        lambda table: b"\xef\xbb\xbf" + text_of(table, "::", header=False).encode(),
        "raw.dat", {"columns": COLUMNS},
    ),
    "latin-1": (
        lambda table: text_of(table).encode("latin-1"), "raw.csv", {"encoding": "latin-1"},
    ),
    "utf-16": (lambda table: text_of(table).encode("utf-16"), "raw.csv", {"encoding": "utf-16"}),
    "dos lines, headerless": (
        lambda table: text_of(table, header=False, end="\r\n").encode(),
        "raw.csv", {"columns": COLUMNS},
    ),
    "zst": (lambda table: zstd(text_of(table).encode()), "raw.csv.zst", {}),
    "two members of gz": (
        lambda table: b"".join(map(gzip.compress, text_of(table).encode().splitlines(True))),
        "raw.csv.gz", {},
    ),
    "no quotes": (lambda table: text_of(table).encode(), "raw.csv", {"quote": "none"}),
    "json": (lambda table: json_of(table).encode(), "raw.jsonl", {}),
    "gz of json, a mark": (
        lambda table: gzip.compress(b"\xef\xbb\xbf" + json_of(table).encode()), "raw.jsonl.gz", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, table: pa.Table, digest: str, write: WriteFile, tmp_path: Path) -> None:
    encoded, file, settings = TEXTS[name]
    source = write(encoded(table), file)
    dataset = prepare(source, tmp_path / "out", PrepareConfig(**settings))
    assert dataset.manifest.digest == digest


def test_columns_are_in_any_order_and_some_unread(
    table: pa.Table, digest: str, write: WriteFile, tmp_path: Path
) -> None:
    rows = [
        f"x::{row['timestamp']}::{row['item_id']}::y::{row['user_id']}\n"
        for row in table.to_pylist()
    ]
    source = write("".join(rows), "raw.dat")
    config = PrepareConfig(columns=("-", "timestamp", "item_id", "-", "user_id"))
    assert prepare(source, tmp_path / "out", config).manifest.digest == digest


def test_a_folder_is_every_file_in_it(
    table: pa.Table, digest: str, write: WriteFile, tmp_path: Path
) -> None:
    third = table.num_rows // 3
    write(text_of(table.slice(0, third), "::"), "raw/a.dat")
    write(zstd(text_of(table.slice(third, third).select(COLUMNS[::-1])).encode()), "raw/b.csv.zst")
    (tmp_path / "raw" / "day=3").mkdir()
    more = table.slice(2 * third).append_column("note", pa.nulls(table.num_rows - 2 * third))
    pq.write_table(more, tmp_path / "raw" / "day=3" / "part-0.parquet")
    write("", "raw/_SUCCESS")
    write("nothing", "raw/.hidden/note.csv")
    for n, source in enumerate((tmp_path / "raw", str(tmp_path / "raw" / "**" / "*.*"))):
        assert prepare(source, tmp_path / f"out{n}").manifest.digest == digest


def test_columns_may_have_numbers_for_names(write: WriteFile, tmp_path: Path) -> None:
    config = PrepareConfig(
        columns=("0", "1", "-"), user_column="0", item_column="1", protocol="none"
    )
    dataset = prepare(write("0,7,-\n1,8,-\n"), tmp_path / "out", config)
    assert (dataset.users.ids(), dataset.items.ids()) == ([0, 1], [7, 8])


def test_frames_and_batches(table: pa.Table, digest: str, tmp_path: Path) -> None:
    batch = table.combine_chunks().to_batches()[0]
    reader = table.to_reader(max_chunksize=100)
    parts = [table.slice(0, 7), table.slice(7)]
    files = [tmp_path / "first.parquet", tmp_path / "second.csv"]
    pq.write_table(parts[0], files[0])
    pa.csv.write_csv(parts[1].select(table.column_names[::-1]), files[1])
    for n, source in enumerate((table.to_pandas(), batch, reader, parts, files)):
        assert prepare(source, tmp_path / f"out{n}").manifest.digest == digest


@needs["polars"]
def test_polars(table: pa.Table, digest: str, tmp_path: Path) -> None:
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    categories = frame.with_columns(pl.col("user_id").cast(pl.Categorical))
    for n, source in enumerate((frame, categories)):
        assert prepare(source, tmp_path / f"out{n}").manifest.digest == digest


def entries(kind: str) -> Any:
    """A matrix whose entries repeat, cancel out, overflow their sum, and are zero."""
    import scipy.sparse

    if kind == "coo_array":
        values = np.array([100, 100, 5, -5, 2, 2, 0], dtype=np.int8)
        pairs = ([0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 2])
        return scipy.sparse.coo_array((values, pairs), shape=(2, 3))
    values, indices = [100, 100, 5, -5, 2, 2, 0], [0, 0, 1, 1, 0, 0, 2]
    data = np.array(values, dtype=np.int8)
    return getattr(scipy.sparse, kind)((data, indices, [0, 4, 7]), shape=(2, 3))


@needs["scipy"]
@pytest.mark.parametrize("kind", ["coo_array", "csr_array", "csr_matrix"])
@pytest.mark.parametrize("rule", [{}, {"min_rating": 4}, {"min_user_interactions": 4}])
def test_entries_of_a_matrix_are_rows_of_a_frame(
    tmp_path: Path, kind: str, rule: dict[str, int]
) -> None:
    matrix = entries(kind)
    frame = pd.DataFrame({"user_id": [0] * 4 + [1] * 3, "item_id": [0, 0, 1, 1, 0, 0, 2]})
    frame["rating"] = [100, 100, 5, -5, 2, 2, 0]
    made = [
        prepare(source, tmp_path / name, protocol="none", **rule).manifest
        for name, source in (("matrix", matrix), ("frame", frame))
    ]
    assert made[0].digest == made[1].digest
    assert made[0].counts == made[1].counts
    assert matrix.nnz == 7, "the caller's matrix was changed"


@needs["scipy"]
def test_the_zeros_that_fill_blocks_up_are_no_entries(tmp_path: Path) -> None:
    import scipy.sparse

    matrix = scipy.sparse.bsr_array(np.array([[5, 0], [0, 3]]), blocksize=(2, 2))
    assert prepare(matrix, tmp_path / "out", protocol="none").manifest.counts["num_rows_read"] == 2


@needs["scipy"]
def test_a_matrix_of_booleans_has_ratings_of_one(tmp_path: Path) -> None:
    import scipy.sparse

    matrix = scipy.sparse.csr_array([[True, False], [True, True]])
    config = PrepareConfig(protocol="none", min_rating=1)
    assert prepare(matrix, tmp_path / "out", config).train.item_index.tolist() == [0, 0, 1]


def test_quotes_as_they_are(write: WriteFile, tmp_path: Path) -> None:
    source = write('user_id\titem_id\n"a\tx\nb"c\ty\n', "raw.tsv")
    dataset = prepare(source, tmp_path / "out", PrepareConfig(quote="none", protocol="none"))
    assert dataset.users.ids() == ['"a', 'b"c']


@pytest.mark.parametrize("encoding", ["CP1252", "cp1251", "gb18030", "utf-16-be", "UTF8"])
def test_encodings_by_any_name(tmp_path: Path, encoding: str) -> None:
    letter = {"cp1251": "\u0416", "gb18030": "\u4e2d"}.get(encoding, "\u20ac 5")
    names = ["raw.csv", "raw.csv.gz", "raw.csv.zst", "raw.jsonl"]
    for name in names:
        text = f"user_id,item_id\n{letter} {name},1\nx,1\n"
        if name.endswith("jsonl"):
            text = f'{{"user_id": "{letter} {name}", "item_id": 1}}\n'
        with pa.output_stream(tmp_path / name) as stream:
            stream.write(text.encode(encoding))
    sources = [tmp_path / name for name in names]
    dataset = prepare(sources, tmp_path / "out", encoding=encoding, protocol="none")
    assert sorted(dataset.users.ids()) == sorted(["x", *(f"{letter} {name}" for name in names)])


def test_what_is_not_in_the_encoding_is_named(write: WriteFile, tmp_path: Path) -> None:
    source = write(b"user_id,item_id\n1,2\n\x81,3\n")
    with raises(InputError, "raw.csv", 3):
        prepare(source, tmp_path / "out", encoding="cp1252")
    source = write(b"user_id,item_id\n1,2\n1,2,3\n\x80,3\n")
    with raises(InputError, "raw.csv", 3, 2, 3):
        prepare(source, tmp_path / "out", encoding="cp1252")


def test_quotes_escaped_by_a_backslash(write: WriteFile) -> None:
    text = r'"User-ID";"ISBN";"Title"' "\n" r'"1";"07\"1";"a \"b\"; c"' "\n" r'"2";"8";"\\"' "\n"
    source = write(text, "raw.csv")
    refuse(source, "raw.csv", 2, "--quote")
    config = PrepareConfig(protocol="none", quote="backslash", user_column="User-ID")
    dataset = prepare(source, source.parent / "out", config)
    assert (dataset.users.ids(), dataset.items.ids()) == ([1, 2], ['07"1', "8"])


@pytest.mark.parametrize(
    ("mark", "line", "delimiter"),
    [
        *(("", "sep={}\n", delimiter) for delimiter in [";", ",", "\t", "|", "^"]),
        ("", "SEP={}\r\n", ";"),
        ("", '"sep={}"\n', ","),
        ("\ufeff", "sep={}\n", ";"),
        ("\ufeff", '"sep={}"\n', "\t"),
    ],
)
def test_a_line_that_names_the_delimiter(
    write: WriteFile, mark: str, line: str, delimiter: str
) -> None:
    ending = "\r\n" if "\r" in line else "\n"
    rows = "user_id,item_id\n1,7\n2,8\n".replace(",", delimiter).replace("\n", ending)
    source = write(mark + line.format(delimiter) + rows)
    config = PrepareConfig(protocol="none")
    assert prepare(source, source.parent / "out", config, overwrite=True).items.ids() == [7, 8]
    refuse(write(mark + line.format(delimiter) + rows + "3"), "raw.csv", 5, 2)
    source = write(mark + line.format(delimiter) + rows.partition(ending)[2])
    config = PrepareConfig(protocol="none", columns=("user_id", "item_id"))
    assert prepare(source, source.parent / "out", config, overwrite=True).items.ids() == [7, 8]


@pytest.mark.parametrize(
    "text",
    ["user_id,item_id,,\n1,7,,\n2,8,,\n", "user_id,item_id,note,note\n1,7,a,b\n2,8,,\n",
     ",user_id,item_id\n0,1,7\n1,2,8\n", "user_id;item_id;n;n;\n1;7;;;\n2;8;;;\n"],
)  # fmt: skip
def test_columns_that_are_not_read_may_have_any_name(write: WriteFile, text: str) -> None:
    source = write(text)
    dataset = prepare(source, source.parent / "out", PrepareConfig(protocol="none"))
    assert (dataset.users.ids(), dataset.items.ids()) == ([1, 2], [7, 8])


@pytest.mark.parametrize("text", ["1,1,2\n1,2,3\n", "1::1::5\n2::1::4\n", "1|2|2|5\n1|3|4|5\n"])
def test_a_first_row_of_values_is_no_header(write: WriteFile, text: str) -> None:
    refuse(write(text), "item_id", 1, "--columns")
