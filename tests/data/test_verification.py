"""Every change in a dataset directory is found, and the file named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste._util.files import file_sha256
from foretaste._util.signed_json import signed_text
from foretaste.data import Dataset, GivenSplit, Manifest, PrepareConfig, prepare, verify_dataset
from foretaste.data.content import content_digest
from foretaste.data.manifest import Part
from foretaste.errors import DatasetError
from tests.data.conftest import PrepareText
from tests.data.partitions import few_open_files, in_partitions


@pytest.fixture
def text() -> str:
    rng = np.random.default_rng(8)
    pairs = {(int(user), int(item)) for user, item in rng.integers((30, 12), size=(260, 2))}
    rows = [f"{user},{item},{(user * 7 + item * 3) % 90}\n" for user, item in sorted(pairs)]
    return "".join(["user_id,item_id,timestamp\n", *rows])


@pytest.fixture
def dataset(prepared: PrepareText, text: str) -> Dataset:
    return prepared(text)


@pytest.fixture
def heldout_users(prepared: PrepareText, text: str) -> Dataset:
    return prepared(text, protocol="held-out-users", num_heldout_users=5)


def rewrite(dataset: Dataset, name: str, columns: dict[str, Any], **manifest: Any) -> None:
    """Give a part other rows, and the manifest the digests of these."""
    path = dataset.path / name
    pq.write_table(pa.table(columns), path)
    part = Part(
        num_rows=pq.read_metadata(path).num_rows,
        sha256=file_sha256(path),
        content_digest=content_digest(path),
    )
    parts = {**dataset.manifest.parts, name: part}
    replace(dataset.manifest, parts=parts, **manifest).write(dataset.path)


def columns_of(dataset: Dataset, name: str) -> dict[str, Any]:
    table = pq.read_table(dataset.path / name)
    return {column: table[column].to_numpy() for column in table.column_names}


def only_problem(dataset: Dataset) -> str:
    found = verify_dataset(dataset.path)
    assert not found.is_ok
    (problem,) = found.problems
    with pytest.raises(DatasetError) as caught:
        found.raise_if_wrong()
    assert str(caught.value) == problem
    return problem


@pytest.mark.parametrize("protocol", ["leave-one-out", "held-out-users", "temporal", "none"])
@pytest.mark.parametrize("validation", ["hold-out", "none"])
def test_what_was_prepared_is_right(
    prepared: PrepareText, text: str, protocol: str, validation: str
) -> None:
    dataset = prepared(text, protocol=protocol, validation=validation)
    found = verify_dataset(dataset.path)
    assert found.problems == []
    assert found.is_ok
    found.raise_if_wrong()
    assert found.holds == "dataset"
    assert [check.subject for check in found.checks] == [
        "manifest.json",
        *dataset.manifest.parts,
        "all parts",
    ]


def test_splits_brought_along_are_right(tmp_path: Path) -> None:
    def table(**columns: list[int]) -> pa.Table:
        return pa.table(columns)

    split = GivenSplit(
        train=table(user_id=[1, 1, 2, 3], item_id=[5, 6, 5, 7]),
        test=table(user_id=[1, 2], item_id=[7, 8]),
        test_candidates=table(user_id=[1, 2, 2], item_id=[5, 6, 7]),
    )
    dataset = prepare(split, tmp_path / "out")
    assert "test_candidates.parquet" in dataset.manifest.parts
    assert verify_dataset(dataset.path).problems == []


@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
@pytest.mark.parametrize("name", ["train.parquet", "test.parquet", "users.parquet"])
def test_a_changed_file_is_named(dataset: Dataset, name: str, change: str) -> None:
    path = dataset.path / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if change == "remove":
        path.unlink()
    else:
        path.write_bytes(content if change == "flip" else content[:-7])
    assert only_problem(dataset).startswith(f"{path}: ")


def test_every_changed_file_is_named(dataset: Dataset) -> None:
    for name in ("train.parquet", "items.parquet"):
        with (dataset.path / name).open("ab") as file:
            file.write(b"more")
    found = verify_dataset(dataset.path)
    assert [problem.partition(":")[0] for problem in found.problems] == [
        str(dataset.path / "train.parquet"),
        str(dataset.path / "items.parquet"),
    ]
    with pytest.raises(DatasetError, match=r"train\.parquet: does not match .* \(and 1 more\)$"):
        found.raise_if_wrong()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.pop("parts"), "is damaged"),
        (lambda values: values.update(format_version=99), "was written in format 99"),
        (lambda values: values.update(digest="0" * 64), "its digest 000000000000 does not match"),
        (lambda values: values.update(seed=values["seed"] + 1), "does not match what it lists"),
        (lambda values: values.update(num_users="many"), "is damaged"),
    ],
)
def test_a_changed_manifest_is_named(
    dataset: Dataset, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = dataset.path / "manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(signed_text(values))
    found = verify_dataset(dataset.path)
    assert any(message in problem for problem in found.problems)


def test_a_manifest_without_training_is_refused(dataset: Dataset) -> None:
    parts = {name: part for name, part in dataset.manifest.parts.items() if "train" not in name}
    replace(dataset.manifest, parts=parts).write(dataset.path)
    assert "manifest.json: is damaged (it does not list train.parquet)" in only_problem(dataset)


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a prepared dataset"):
        verify_dataset(tmp_path).raise_if_wrong()


def test_a_content_digest_of_other_rows(dataset: Dataset) -> None:
    name = "test.parquet"
    values = json.loads((dataset.path / "manifest.json").read_text())
    other = Part(**values["parts"][name] | {"content_digest": "0" * 64})
    parts = {**dataset.manifest.parts, name: other}
    replace(dataset.manifest, parts=parts).write(dataset.path)
    assert "the manifest says" in only_problem(dataset)
    assert asdict(other)["num_rows"] == values["parts"][name]["num_rows"]


def test_rows_out_of_order(dataset: Dataset) -> None:
    columns = columns_of(dataset, "train.parquet")
    rewrite(dataset, "train.parquet", {name: values[::-1] for name, values in columns.items()})
    assert "train.parquet: its rows are not in order" in only_problem(dataset)


def test_indexes_of_other_widths(dataset: Dataset) -> None:
    columns = columns_of(dataset, "test.parquet")
    columns["item_index"] = columns["item_index"].astype(np.int64)
    rewrite(dataset, "test.parquet", columns)
    assert "has columns user_index (int32), item_index (int64)" in only_problem(dataset)


def test_indexes_out_of_range(dataset: Dataset) -> None:
    columns = columns_of(dataset, "test.parquet")
    beyond = np.int32([*columns["item_index"][:-1], dataset.manifest.num_all_items])
    rewrite(dataset, "test.parquet", {**columns, "item_index": beyond})
    assert "test.parquet: item_index runs from" in only_problem(dataset)


def test_a_pair_in_two_parts(dataset: Dataset) -> None:
    train = columns_of(dataset, "train.parquet")
    rewrite(dataset, "test.parquet", {name: values[:3] for name, values in train.items()})
    problem = only_problem(dataset)
    assert problem.startswith(f"{dataset.path}/test.parquet: 3 of its pairs are in an earlier part")


def test_fold_in_users_that_train_too(heldout_users: Dataset) -> None:
    name = "test_fold_in.parquet"
    columns = columns_of(heldout_users, name)
    train = heldout_users.train
    item = next(item for item in range(train.num_items) if item not in train[0:1].item_index)
    columns = {
        "user_index": np.concatenate((np.int32([0]), columns["user_index"])),
        "item_index": np.concatenate((np.int32([item]), columns["item_index"])),
    }
    rewrite(heldout_users, name, columns)
    assert f"{name}: 1 of its users are in training too" in only_problem(heldout_users)


def test_users_and_items_that_training_lacks(dataset: Dataset) -> None:
    train = columns_of(dataset, "train.parquet")
    without = train["item_index"] != 3
    rest = {name: values[without] for name, values in train.items()}
    rewrite(dataset, "train.parquet", rest, num_interactions=int(without.sum()))
    assert "lacks 1 items of the catalogue" in only_problem(dataset)
    without = train["user_index"] != 2
    rest = {name: values[without] for name, values in train.items()}
    rewrite(dataset, "train.parquet", rest, num_interactions=int(without.sum()))
    assert "its users are not the first" in only_problem(dataset)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids[:1].tolist() * len(ids), "an id is there more than once"),
        (lambda ids: [str(value) for value in ids], "ids are text, the manifest says integer"),
    ],
)
def test_ids_that_are_not_as_said(
    dataset: Dataset, change: Callable[[Any], list[Any]], message: str
) -> None:
    columns = columns_of(dataset, "items.parquet")
    columns["item_id"] = change(columns["item_id"])
    rewrite(dataset, "items.parquet", columns)
    assert f"items.parquet: {message}" in only_problem(dataset)


def test_a_file_that_is_no_parquet(dataset: Dataset) -> None:
    path = dataset.path / "train.parquet"
    path.write_bytes(b"PAR1 but not really PAR1")
    part = replace(dataset.manifest.parts["train.parquet"], sha256=file_sha256(path))
    parts = {**dataset.manifest.parts, "train.parquet": part}
    replace(dataset.manifest, parts=parts).write(dataset.path)
    assert f"{path}: cannot be read" in only_problem(dataset)


def test_the_manifest_is_read_as_it_was_written(dataset: Dataset) -> None:
    assert Manifest.read(dataset.path) == dataset.manifest
    assert PrepareConfig(**Manifest.read(dataset.path).config) == PrepareConfig()


def test_more_training_files_than_can_be_open(dataset: Dataset, tmp_path: Path) -> None:
    split = in_partitions(dataset, tmp_path / "split", range(30))
    assert len(split.manifest.train_files) == 30
    with few_open_files():
        assert verify_dataset(split.path).problems == []
