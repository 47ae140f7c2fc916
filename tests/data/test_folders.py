"""Folders named COLUMN=VALUE: of no meaning above what was named, columns below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import PrepareConfig, open_dataset, open_or_prepare, prepare
from foretaste.errors import InputError
from tests.data.conftest import WriteFile

TABLE = pa.table(
    {"user_id": [1, 1, 1, 2, 2, 2], "item_id": [5, 6, 7, 5, 6, 8], "timestamp": range(6)}
)
FOLDERS = ["user_id=999", "timestamp=3", "ITEM_ID=x", "c0=7", "new=1"]


def stored(table: pa.Table, path: Path) -> Path:
    """The table as a file of the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_file_is_what_it_is_wherever_it_lies(tmp_path: Path, folder: str, name: str) -> None:
    plain = prepare(stored(TABLE, tmp_path / name), tmp_path / "plain")
    for source in (stored(TABLE, tmp_path / folder / name), tmp_path / folder):
        prepared = prepare(source, tmp_path / "out", overwrite=True)
        assert prepared.manifest.digest == plain.manifest.digest
        assert prepared.manifest.columns == plain.manifest.columns
        assert prepared.manifest.notes == plain.manifest.notes


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_column_of_the_file_goes_before_its_folder(tmp_path: Path, name: str) -> None:
    stored(TABLE, tmp_path / "all" / "User_ID=999" / name)
    plain = prepare(TABLE, tmp_path / "plain")
    prepared = prepare(tmp_path / "all", tmp_path / "out")
    assert prepared.manifest.digest == plain.manifest.digest
    message = "names such as 'User_ID=999' are not read, as the files have that column"
    assert ("folders", message) in open_dataset(tmp_path / "out").manifest.summary()


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
@pytest.mark.parametrize("source", ["all", "all/*/*", "all/date=*/**/x.*", "**/x.*"])
def test_folders_are_columns_that_files_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in range(3):
        rows = pa.table({"item_id": [5 + place, 6 + place], "user_id": [1, 2]})
        stored(rows, tmp_path / "all" / f"date=2024-03-0{3 - place}" / name)
    prepared = prepare(source, "out", PrepareConfig(validation="none"))
    assert prepared.manifest.protocol == "leave-one-out"
    assert prepared.manifest.columns["time"] == "date"
    assert prepared.manifest.notes["folders"] == (
        "'date' is read from the names of folders, such as 'date=2024-03-01'"
    )
    test = prepared.heldout("test").target
    assert prepared.items.ids(test.item_index) == [5, 6]


@pytest.mark.parametrize(
    ("folder", "user"),
    [("user_id=a%2Fb%20c", "a/b c"), ("user_id=007", "007"), ("user_id=it's=x", "it's=x")],
)
def test_values_of_folders_are_text(tmp_path: Path, folder: str, user: str) -> None:
    stored(TABLE.select(["item_id"]), tmp_path / "all" / folder / "x.parquet")
    prepared = prepare(tmp_path / "all", tmp_path / "out", PrepareConfig(protocol="none"))
    assert prepared.users.ids() == [user]


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_folder_without_a_value(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "all" / "user_id=__HIVE_DEFAULT_PARTITION__"
    stored(TABLE.select(["item_id"]), folder / name)
    with pytest.raises(InputError, match=rf"{name}: user_id is empty \(column 'user_id', 6 rows"):
        prepare(tmp_path / "all", tmp_path / "out", PrepareConfig(protocol="none"))


def test_other_folders_make_another_dataset(write: WriteFile, tmp_path: Path) -> None:
    def made(folder: str) -> tuple[str, Any]:
        write("item_id\n1\n2\n", f"{folder}/user_id={folder}/x.csv")
        config = PrepareConfig(protocol="none")
        dataset = open_or_prepare(tmp_path / folder, config, tmp_path / "datasets")
        return dataset.path.name, dataset.users.ids()

    (first, first_users), (second, second_users) = made("a"), made("b")
    assert (first_users, second_users) == (["a"], ["b"])
    assert first != second
