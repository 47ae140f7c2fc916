"""Every change in a dataset directory is found, and the file named."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset, verify_dataset
from foretaste.errors import DatasetError
from tests.data.conftest import PrepareText


@pytest.fixture
def dataset(prepared: PrepareText) -> Dataset:
    rows = "".join(f"{user},{item},{item}\n" for user in range(4) for item in range(user, 7))
    return prepared("user_id,item_id,time\n" + rows)


def test_what_was_prepared_is_right(dataset: Dataset) -> None:
    found = verify_dataset(dataset.path)
    assert (found.problems, found.is_ok, found.holds) == ([], True, "dataset")
    found.raise_if_wrong()
    subjects = [check.subject for check in found.checks]
    assert subjects == ["manifest.json", *dataset.manifest.parts]


def test_every_changed_file_is_named(dataset: Dataset) -> None:
    content = bytearray((dataset.path / "train.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (dataset.path / "train.parquet").write_bytes(content)
    (dataset.path / "items.parquet").unlink()
    found = verify_dataset(dataset.path)
    assert [problem.partition(":")[0] for problem in found.problems] == [
        str(dataset.path / "train.parquet"),
        str(dataset.path / "items.parquet"),
    ]
    with pytest.raises(DatasetError, match=r"train\.parquet: does not match .* \(and 1 more\)$"):
        found.raise_if_wrong()


def test_a_changed_manifest_is_named(dataset: Dataset) -> None:
    path = dataset.path / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    (problem,) = verify_dataset(dataset.path).problems
    assert problem.startswith(f"{path}: is damaged")


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a prepared dataset"):
        verify_dataset(tmp_path).raise_if_wrong()
