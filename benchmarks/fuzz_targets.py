"""Targets of the fuzzer: every reader of files that somebody else wrote, and the first cases.

A target takes an empty folder and the bytes of a case. It returns if the bytes were read whole, and
raises a ForetasteError if they are refused; anything else is a finding.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste.data import Dataset, GivenSplit, IdTable, PrepareConfig, open_dataset, prepare
from foretaste.errors import ForetasteError
from foretaste.recommend import read_ids

LONGEST_MESSAGE = 10_000

SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Directory of the cases, in memory if the machine has /dev/shm."""

HEADER = "user_id,item_id,rating,timestamp\n"
ROWS = "".join(f"{u},{i},4.0,{u + i}\n" for u in range(4) for i in range(4))
ITEMS = 'item_id,title\n0,Alien\n1,"Heat, the film"\n2,Amélie\n'
JSON_LINES = (
    '{"user_id": 1, "item_id": "a", "timestamp": 5}\n' * 3,
    '{"user_id": {"a": 1}, "item_id": [1]}\n{"user": true, "item": null}\n\n[1]\n',
    '{"user_id": "\\ud800", "item_id": 1e400, "a/~b": "c"}\n{"-": 1}\n{',
)
NCF_TRAIN = "0\t1\t5\t1\n0\t2\t5\t1\n1\t1\t3\t2\n1\t3\t3\t3\n"
NCF_TEST = "0\t3\t5\t1\n1\t2\t5\t1\n"
NCF_NEGATIVE = "(0,3)\t1\t2\n(1,2)\t1\n"
SEPARATOR = b"\n\x1d\n"
"""Separates the files of a case."""

FORMATS: tuple[dict[str, Any], ...] = (
    {},
    {"columns": ("user_id", "item_id", "rating", "timestamp")},
    {"delimiter": "::", "columns": ("user_id", "item_id", "-", "timestamp")},
    {"encoding": "latin-1", "min_rating": 2.0},
    {"encoding": "utf-16", "protocol": "none"},
    {"quote": "none", "delimiter": "\\t", "protocol": "held-out-users"},
    {"min_rating": 1.0, "protocol": "temporal", "validation": "none"},
    {"quote": "backslash", "empty_ids": "drop"},
)
"""Settings of a preparation; the first byte of a case chooses among them."""


def check_whole(dataset: Dataset) -> None:
    """Read everything that a dataset holds."""
    assert len(dataset.users) == dataset.manifest.num_users
    assert len(dataset.items) == dataset.manifest.num_all_items
    assert dataset.users.lookup(dataset.users.ids()).tolist() == list(range(len(dataset.users)))
    dataset.items.titles()
    assert dataset.train.num_users == dataset.manifest.num_train_users
    for split in ("validation", "test"):
        if dataset.has_split(split):
            dataset.heldout(split)
    dataset.all_interactions()
    dataset.manifest.summary()


def check_prepared(folder: Path, source: Any, settings: dict[str, Any], items: Any = None) -> None:
    """Check that preparing ends with a whole dataset or an error."""
    output = folder / "out" / "dataset"
    output.parent.mkdir()
    try:
        prepare(source, output, PrepareConfig(threads=1, **settings), items=items)
    except ForetasteError:
        assert not list(output.parent.iterdir()), "something was left behind"
        raise
    assert list(output.parent.iterdir()) == [output], "something was left behind"
    check_whole(open_dataset(output))


def attack_csv(folder: Path, data: bytes) -> None:
    """Prepare text; the first byte chooses the declared format of the rest."""
    source = folder / "raw.csv"
    source.write_bytes(data[1:])
    check_prepared(folder, source, FORMATS[data[0] % len(FORMATS)] if data else {})


def attack_json(folder: Path, data: bytes) -> None:
    source = folder / "raw.jsonl"
    source.write_bytes(data)
    check_prepared(folder, source, {})


def attack_lists(folder: Path, data: bytes) -> None:
    source = folder / "raw.txt"
    source.write_bytes(data)
    check_prepared(folder, source, {"layout": "lists"})


def attack_packed(folder: Path, data: bytes) -> None:
    """Prepare compressed text; the first byte chooses gz or zst."""
    source = folder / ("raw.csv.gz" if data[:1] < b"\x80" else "raw.csv.zst")
    source.write_bytes(data[1:])
    check_prepared(folder, source, {})


def attack_parquet(folder: Path, data: bytes) -> None:
    source = folder / "raw.parquet"
    source.write_bytes(data)
    check_prepared(folder, source, {"min_rating": 0.0})


def attack_items(folder: Path, data: bytes) -> None:
    """Prepare with a file of titles; the first byte chooses text or Parquet."""
    source = folder / "raw.csv"
    source.write_text(HEADER + ROWS)
    items = folder / ("items.csv" if data[:1] < b"\x80" else "items.parquet")
    items.write_bytes(data[1:])
    check_prepared(folder, source, {}, items)


def attack_ncf(folder: Path, data: bytes) -> None:
    """Prepare the triple of the NCF paper: one file after the other."""
    parts = data.split(SEPARATOR, 2)
    suffixes = (".train.rating", ".test.rating", ".test.negative")
    for suffix, part in zip(suffixes, parts, strict=False):
        (folder / f"raw{suffix}").write_bytes(part)
    check_prepared(folder, folder / "raw.train.rating", {})


def attack_split(folder: Path, data: bytes) -> None:
    """Prepare a given split: files of training, test fold-in, test, candidates."""
    paths = [folder / f"{name}.csv" for name in ("train", "fold_in", "test", "candidates")]
    parts = data.split(SEPARATOR, len(paths) - 1)
    for path, part in zip(paths, parts, strict=False):
        path.write_bytes(part)
    train, fold_in, test, candidates = paths[: len(parts)] + [None] * (len(paths) - len(parts))
    split = GivenSplit(train=train, test_fold_in=fold_in, test=test, test_candidates=candidates)
    check_prepared(folder, split, {})


def attack_manifest(folder: Path, data: bytes) -> None:
    """Open a dataset whose manifest somebody wrote."""
    shutil.copytree(model_dataset(), folder / "dataset")
    (folder / "dataset" / "manifest.json").write_bytes(data)
    check_whole(open_dataset(folder / "dataset"))


def attack_ids(folder: Path, data: bytes) -> None:
    """Read a file of ids for recommend; the first byte chooses Parquet, CSV, TSV or lines."""
    suffix = (".parquet", ".csv", ".tsv", ".txt")[data[0] % 4 if data else 0]
    (folder / f"ids{suffix}").write_bytes(data[1:])
    assert read_ids(folder / f"ids{suffix}", IdTable.from_ids("item", ["0"]))


TARGETS: dict[str, Callable[[Path, bytes], None]] = {
    "csv": attack_csv,
    "json": attack_json,
    "lists": attack_lists,
    "packed": attack_packed,
    "parquet": attack_parquet,
    "items": attack_items,
    "ncf": attack_ncf,
    "split": attack_split,
    "manifest": attack_manifest,
    "ids": attack_ids,
}


def attack(target: str, data: bytes) -> None:
    """Run one case; any error except a ForetasteError of readable length is a finding."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="fuzz-") as folder:
        try:
            TARGETS[target](Path(folder), data)
        except ForetasteError as error:
            message = str(error)
        else:
            return
    assert 0 < len(message) < LONGEST_MESSAGE, "an error nobody can read"


@cache
def model_dataset() -> Path:
    """A sound dataset, prepared once."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="fuzz-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "raw.csv").write_text(HEADER + ROWS)
    prepare(folder / "raw.csv", folder / "dataset", PrepareConfig(threads=1))
    return folder / "dataset"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def corpus(target: str) -> list[bytes]:
    """The first cases of a hunt: sound ones and slightly odd ones."""
    text = (HEADER + ROWS).encode()
    odd = [
        b"", b"\xef\xbb\xbf", b"\n", b"\0", HEADER.encode(), text.replace(b"\n", b"\r\n"),
        text.replace(b",", b"\t"), text.replace(b",", b"::"), text + b'"a\nb",1,2,2020-12-31\n',
        text + b"9223372036854775807,-9223372036854775808,nan,9223372036854775808\n",
        text + "\u202e\u0301,\u2028,inf,infinity\n".encode(), text + b"\xed\xa0\x80,1,1e400,x\n",
        ROWS.encode(), text.decode().encode("utf-16"), text + b'a""b,"c""d",1,1\n',
    ]  # fmt: skip
    parquet = [parquet_bytes(table) for table in tables()]
    ncf = [part.encode() for part in (NCF_TRAIN, NCF_TEST, NCF_NEGATIVE)]
    split = [text, b"user_id,item_id\n9,1\n", b"user_id,item_id\n9,2\n0,7\n",
             b"user_id,item_id\n9,3\n0,3\n"]  # fmt: skip
    manifest = (model_dataset() / "manifest.json").read_bytes()
    by_first_byte = [
        bytes([kind % len(FORMATS)]) + case
        for place, case in enumerate(odd)
        for kind in (0, place + 1)
    ]
    return {
        "csv": by_first_byte,
        "json": [*odd, *(case.encode() for case in JSON_LINES)],
        "lists": [*odd, b"0 1 2 3\n1 2 3 4\n2 5\n3\n", b"a,1,2\nb\t1 ,2\n"],
        "packed": [b"\0" + gzip.compress(case) for case in odd[::2]]
        + [b"\xff" + pa.compress(case, "zstd", asbytes=True) for case in odd[1::2]],
        "parquet": parquet,
        "items": [b"\0" + ITEMS.encode(), *(b"\xff" + case for case in parquet), *by_first_byte],
        "ncf": [SEPARATOR.join(ncf), *(SEPARATOR.join([*ncf[:2], case]) for case in odd)],
        "split": [SEPARATOR.join(split), SEPARATOR.join([*split[:3], odd[0]]), SEPARATOR.join(odd)],
        "manifest": [manifest, b"[" * 5000, b"{}", b'{"format_version": 3}'],
        "ids": by_first_byte + [b"\0" + case for case in parquet],
    }[target]  # fmt: skip


def tables() -> list[pa.Table]:
    """Tables with every type of column that files have."""
    users = [user for user in range(4) for _ in range(4)]
    items = list(range(4)) * 4
    times: list[pa.Array] = [
        pa.array(items), pa.array(items, pa.timestamp("ns")), pa.array(items, pa.date32()),
        pa.array([str(item) for item in items]).dictionary_encode(),
        pa.array([[item] for item in items]), pa.array([float(item) for item in items]),
        pa.array(items).cast(pa.decimal128(21, 2)), pa.array([{"a": item} for item in items]),
    ]  # fmt: skip
    texts = pa.array([f"user {user}" for user in users])
    found = [pa.table({"user": texts, "item": items, "rating": time, "time": time})
             for time in times]  # fmt: skip
    ids = [pa.table({"item_id": [0, 1, 2], "title": ["Alien", "Heat", None]})]
    indexes = pa.array(users, pa.int32()), pa.array(items, pa.int32())
    return [*found, *ids, pa.table({"user_index": indexes[0], "item_index": indexes[1]})]


def parquet_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    # Small footers leave more bytes of a case to the content.
    pq.write_table(table, sink, store_schema=False, write_statistics=False)
    return sink.getvalue()
