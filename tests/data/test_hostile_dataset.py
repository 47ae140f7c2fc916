"""Dataset directories that somebody changed: opened as they are, or refused by name of the file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_targets import attack, check_whole, model_dataset, sha256, signed
from foretaste.data import open_dataset
from foretaste.errors import DatasetError

FIELDS = json.loads((model_dataset() / "manifest.json").read_text()).keys()

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset of the test's own, to be damaged."""
    return Path(shutil.copytree(model_dataset(), tmp_path / "dataset"))


def rewrite(dataset: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    change(manifest)
    (dataset / "manifest.json").write_bytes(signed(manifest))


def replace(dataset: Path, name: str, table: pa.Table) -> None:
    """Another file in the place of a part, and a manifest that vouches for it."""
    pq.write_table(table, dataset / name)
    digest = sha256((dataset / name).read_bytes())
    rewrite(dataset, lambda manifest: manifest["parts"][name].update(sha256=digest))


def refuse(dataset: Path, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as error:
        check_whole(open_dataset(dataset))
    assert len(str(error.value)) < 10_000


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(FIELDS)), anything)
def test_manifests_with_any_value(tmp_path_factory: Any, field: str, value: Any) -> None:
    dataset = tmp_path_factory.mktemp("dataset")
    shutil.copytree(model_dataset(), dataset, dirs_exist_ok=True)
    rewrite(dataset, lambda manifest: manifest.update({field: value}))
    with suppress(DatasetError):
        check_whole(open_dataset(dataset))


@settings(max_examples=100)
@given(st.binary(max_size=100) | anything.map(lambda value: json.dumps(value).encode()))
def test_manifests_of_any_kind(data: bytes) -> None:
    attack("manifest", data)


@pytest.mark.parametrize("size", ["num_users", "num_train_users", "num_items", "num_all_items"])
@pytest.mark.parametrize("value", [-1, 10**12, 10**30, True, 4.0, "4", None])
def test_sizes_that_cannot_be(dataset: Path, size: str, value: Any) -> None:
    rewrite(dataset, lambda manifest: manifest.update({size: value}))
    refuse(dataset, rf"manifest\.json: is damaged \({size} is ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read: maximum recursion depth"),
        (b'{"format_version":' + b"1" * 10_000 + b"}", "cannot be read: Exceeds the limit"),
        (b"\xff", "cannot be read"),
        (b"null", "was written in format None"),
        (b'{"format_version": "' + b"1" * 100_000 + b'"}', r"was written in format '1{200}'\.\.\."),
    ],
    ids=range(6),
)
def test_what_is_no_manifest(dataset: Path, content: bytes, message: str) -> None:
    (dataset / "manifest.json").write_bytes(content)
    refuse(dataset, rf"manifest\.json: {message}")


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../other.parquet", "a\0b", "", ".", "x" * 5000, "train.parquet\ud800"]
)
def test_parts_that_no_dataset_has(dataset: Path, name: str) -> None:
    def add(manifest: dict[str, Any]) -> None:
        manifest["parts"][name] = manifest["parts"]["train.parquet"]

    rewrite(dataset, add)
    refuse(dataset, r"manifest\.json: is damaged \(it lists .* which is no part of a dataset\)")


@pytest.mark.parametrize("name", ["train.parquet", "users.parquet", "items.parquet"])
def test_parts_that_every_dataset_has(dataset: Path, name: str) -> None:
    rewrite(dataset, lambda manifest: manifest["parts"].pop(name))
    refuse(dataset, rf"is damaged \(it does not list {name}\)")


def swap(path: Path) -> None:
    other = "users.parquet" if path.name != "users.parquet" else "train.parquet"
    shutil.copy(path.with_name(other), path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def lengthen(path: Path) -> None:
    """By a terabyte, of which none is on the disk."""
    os.truncate(path, 1 << 40)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("name", ["train.parquet", "users.parquet", "test.parquet"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (swap, "does not match the manifest"),
        (cut, "does not match the manifest"),
        (lengthen, "does not match the manifest: .* it does not end like Parquet"),
        (Path.unlink, "listed in the manifest, cannot be read: No such file"),
        (loop, "listed in the manifest, cannot be read: Too many levels"),
        (pipe, "is not a file"),
        (folder, "is not a file"),
    ],
)
def test_parts_damaged(
    dataset: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    damage(dataset / name)
    refuse(dataset, rf"{name}: {message}")


@pytest.mark.parametrize("make", [pipe, folder, loop])
def test_a_manifest_that_is_no_file(dataset: Path, make: Callable[[Path], None]) -> None:
    make(dataset / "manifest.json")
    refuse(dataset, r"is not a prepared dataset: it has no manifest\.json")


INT32 = pa.int32()
PAIRS = [
    pa.table({"user_index": ["a"], "item_index": ["b"]}),
    pa.table({"user_index": [0], "item_index": [2**40]}),
    pa.table({"user_index": [0.5], "item_index": [float("nan")]}),
    pa.table({"user_index": [[0]], "item_index": [[1]]}),
    pa.table({"user_index": pa.array([None], INT32), "item_index": pa.array([0], INT32)}),
    pa.table({"user_index": pa.array([-1], INT32), "item_index": pa.array([0], INT32)}),
    pa.table({"user_index": pa.array([0], INT32), "item_index": pa.array([2**31 - 1], INT32)}),
    pa.table({"user_index": pa.array([0, 0], INT32), "item_index": pa.array([1, 1], INT32)}),
    pa.table({}),
]
IDS = [
    pa.table({"user_index": pa.array(range(4), INT32), "user_id": [[1]] * 4}),
    pa.table({"user_index": pa.array(range(4), INT32), "user_id": [1.5] * 4}),
    pa.table({"user_index": pa.array(range(4), INT32), "user_id": [1, None, 3, 4]}),
    pa.table({"user_index": pa.array(range(4), INT32), "user_id": [b"\xff"] * 4}),
    pa.table({"user_index": pa.array([0, 1, 2, 2], INT32), "user_id": range(4)}),
    pa.table({"user_index": pa.array(range(3), INT32), "user_id": range(3)}),
    pa.table({"user_index": ["0"] * 4, "user_id": range(4)}),
    pa.table({"user_index": range(4), "user_id": range(4)}),
    *PAIRS,
]


@pytest.mark.parametrize("table", PAIRS, ids=range(len(PAIRS)))
def test_pairs_that_are_none(dataset: Path, table: pa.Table) -> None:
    replace(dataset, "train.parquet", table)
    refuse(dataset, r"train\.parquet: .* again")


@pytest.mark.parametrize("table", IDS, ids=range(len(IDS)))
def test_ids_that_are_none(dataset: Path, table: pa.Table) -> None:
    replace(dataset, "users.parquet", table)
    refuse(dataset, r"users\.parquet: ")
