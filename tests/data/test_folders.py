"""Folders named COLUMN=VALUE are folders as others are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import prepare

TABLE = pa.table(
    {"user_id": [1, 1, 1, 2, 2, 2], "item_id": [5, 6, 7, 5, 6, 8], "timestamp": range(6)}
)
FOLDERS = "user_id=999/timestamp=3/ITEM_ID=x/c0=7/new=1"


def stored(table: pa.Table, path: Path) -> Path:
    """The table as a file of the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_file_is_what_it_is_wherever_it_lies(tmp_path: Path, name: str) -> None:
    plain = prepare(stored(TABLE, tmp_path / name), tmp_path / "plain")
    below = stored(TABLE, tmp_path / "all" / FOLDERS / name)
    for source in (below, below.parent, tmp_path / "all", f"{tmp_path}/all/**/x.*"):
        prepared = prepare(source, tmp_path / "out", overwrite=True)
        assert prepared.manifest.digest == plain.manifest.digest
        assert prepared.manifest.columns == plain.manifest.columns
        assert prepared.manifest.notes == plain.manifest.notes
