"""Names in object stores, and datasets copied to a place without an atomic rename."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from foretaste.data import open_dataset, prepare
from foretaste.data.config import FileFormat
from foretaste.data.preparation.inputs import Inputs
from foretaste.data.request import PrepareRequest
from foretaste.data.sources import open_sources
from foretaste.data.sources.source import Column, Source
from foretaste.errors import DatasetError
from tests.data.partitions import in_partitions
from tests.messages import raises

ROWS = "user_id,item_id,time\n" + "".join(f"{n % 7},{n * n % 11},{n}\n" for n in range(70))


@pytest.mark.parametrize(
    "name",
    [
        *("s3a://bucket/plays/*.csv", "hdfs://host:8020/plays", "gs://bucket/day=1"),
        *("abfss://box@account.dfs.core.windows.net/plays", "file:///plays", "table:shop.plays"),
    ],
)
@pytest.mark.parametrize("kind", [str, Path])
def test_names_are_handed_on_as_they_are(name: str, kind: Any) -> None:
    handed: list[str] = []

    def opener(name: str, format: FileFormat) -> Any:
        handed.append(name)

    open_sources(kind(name), FileFormat(), opener=opener)
    assert handed in ([name], [name.replace("file:///", "file:/")])


def test_a_store_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(ROWS)
    with raises(DatasetError):
        prepare(tmp_path / "raw.csv", "s3a://bucket/plays")


def test_a_dataset_of_a_table_has_its_whole_name(tmp_path: Path) -> None:
    class Table(Source):
        def sha256(self) -> str:
            return "0" * 64

    def opener(name: str, format: FileFormat) -> Source:
        ids = dict.fromkeys(("user_id", "item_id"), Column(sql="", storage="text", type_name=""))
        return Table(name=name, relation="", columns=ids, size=0)

    inputs = Inputs.open(PrepareRequest(source="table:shop.eu"), lambda _: None, opener)
    assert inputs.default_output(tmp_path).name.startswith("shop.eu-")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_dataset_is_not_there_until_its_last_file_is(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    """The files may be copied in any order if a file system cannot rename a folder."""
    (tmp_path / "raw.csv").write_text(ROWS)
    whole = prepare(tmp_path / "raw.csv", tmp_path / "whole")
    dataset = in_partitions(whole, tmp_path / "in_files", [0, 3])
    files = sorted(path.relative_to(dataset.path) for path in dataset.path.rglob("*.*"))
    for number, order in enumerate((files, files[::-1])):
        place = tmp_path / f"store-{number}"
        if is_replaced:
            shutil.copytree(prepare(tmp_path / "raw.csv", tmp_path / "old", seed=1).path, place)
        for file in order:
            if not is_replaced:
                with pytest.raises(DatasetError):
                    open_dataset(place)
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(dataset.path / file, place / file)
        assert open_dataset(place).manifest == dataset.manifest
