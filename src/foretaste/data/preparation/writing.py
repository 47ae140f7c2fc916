"""The files of a dataset, written by the engine of a preparation and checked as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from foretaste._util.files import file_sha256, real_path
from foretaste.data.content import content_digest, is_in_order
from foretaste.data.manifest import TRAIN_FILE, Part
from foretaste.data.preparation import steps
from foretaste.errors import DatasetError, InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.casts import Kind
    from foretaste.data.preparation.engine import Engine


def write_parts(
    engine: Engine,
    directory: Path,
    pairs: Mapping[str, str],
    kinds: Mapping[str, Kind],
    item_columns: Sequence[str],
    num_rows: int,
) -> tuple[dict[str, Part], str]:
    """Write every Parquet file: ``pairs`` has the rows of each part beside training's, which are
    ``num_rows``. Their descriptions by file name, and the digest of a training part in several."""
    queries = {name: steps.PAIRS_FILE.format(rows=rows) for name, rows in pairs.items()}
    # However few bits were enough for them in between.
    ids = {
        role: f"CAST({role} AS BIGINT)" if kind == "integer" else role
        for role, kind in kinds.items()
    }
    queries["users"] = steps.USERS_FILE.format(user_id=ids["user_id"])
    queries["items"] = steps.ITEMS_FILE.format(
        item_id=ids["item_id"],
        item_columns="".join(f", {name}" for name in item_columns),
        described=steps.DESCRIBED if item_columns else "",
    )
    with _naming(directory / TRAIN_FILE):
        train = steps.PAIRS_FILE.format(rows="train")
        train_files = engine.write_train(train, directory, num_rows)
    parts = {name: _described(directory / name) for name in train_files}
    train_digest = ""
    if train_files != [TRAIN_FILE]:
        train_digest = content_digest(*(directory / name for name in train_files))
    for name, query in queries.items():
        with _naming(directory / f"{name}.parquet"):
            engine.write(query, directory / f"{name}.parquet")
        parts[f"{name}.parquet"] = _described(directory / f"{name}.parquet")
    return parts, train_digest


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise DatasetError(f"{path}: cannot be written: {error}") from None


def _described(path: Path) -> Part:
    with pq.ParquetFile(real_path(path)) as file:
        # The engine was caught not to sort, and a reader would refuse the file.
        assert is_in_order(file), f"{path.name} came out unsorted"
        num_rows = file.metadata.num_rows
    return Part(num_rows=num_rows, sha256=file_sha256(path), content_digest=content_digest(path))
