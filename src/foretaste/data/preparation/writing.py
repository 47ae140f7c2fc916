"""The files of a dataset, written by the engine of a preparation and read again for checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.files import file_sha256, real_path
from foretaste.data.histories import is_strictly_sorted
from foretaste.data.manifest import TRAIN_FILE, Part
from foretaste.data.part_files import (
    FEATURE_COLUMNS,
    PAIR_COLUMNS,
    numbers,
)
from foretaste.data.preparation import steps
from foretaste.errors import DatasetError

if TYPE_CHECKING:
    from foretaste.data.preparation.casts import Kind
    from foretaste.data.preparation.engine import Engine


def write_parts(
    engine: Engine, directory: Path, train: str, queries: Mapping[str, str]
) -> tuple[dict[str, Part], str]:
    """Write the training part by its query, and a Parquet file by the query of each name.

    Returns the descriptions by file name, and the digest of a training part in several files.
    """
    train_files = engine.write_train(train, directory, engine.count("train"))
    parts = _describe_files(directory, *train_files)
    train_digest = ""
    if train_files != [TRAIN_FILE]:
        train_digest = content_digest(*(directory / name for name in train_files))
    for name, query in queries.items():
        engine.write(query, directory / f"{name}.parquet")
        parts |= _describe_files(directory, f"{name}.parquet")
    return parts, train_digest


def queries_of_ids(kinds: Mapping[str, Kind], item_columns: Sequence[str]) -> dict[str, str]:
    """Return the queries of the files of users and items."""
    # Files have integer ids of 64 bits, even if 32 bits were enough during the preparation.
    ids = {
        role: f"CAST({role} AS BIGINT)" if kind == "integer" else role
        for role, kind in kinds.items()
    }
    items = steps.ITEMS_FILE.format(
        item_id=ids["item_id"],
        item_columns="".join(f", {name}" for name in item_columns),
        described=steps.DESCRIBED if item_columns else "",
    )
    return {"users": steps.USERS_FILE.format(user_id=ids["user_id"]), "items": items}


def _describe_files(directory: Path, *names: str) -> dict[str, Part]:
    """Return the descriptions of the files of one part, by name."""
    files = [directory / name for name in names]
    # DuckDB returned rows of an ORDER BY unsorted (so far not in a COPY), and readers rely on
    # order.
    if not is_in_order(*files):
        raise DatasetError(f"{files[0]}: the engine wrote its rows unsorted; prepare again")
    return {
        name: Part(
            num_rows=pq.read_metadata(real_path(file)).num_rows,
            sha256=file_sha256(file),
            content_digest=content_digest(file),
        )
        for name, file in zip(names, files, strict=True)
    }


def is_in_order(*files: Path) -> bool:
    """Return True if pairs ascend by both columns, without repeats, or if an index is 0, 1, ..."""
    names = pq.read_schema(real_path(files[0])).names
    if names[:2] in (PAIR_COLUMNS, FEATURE_COLUMNS):
        last = (-1, -1)
        for users, items in zip(*(_values(files, name) for name in names[:2]), strict=True):
            if last >= (users[0], items[0]) or not is_strictly_sorted(users, items):
                return False
            last = (users[-1], items[-1])
        return True
    num_rows = 0
    for index in _values(files, names[0]):
        if not np.array_equal(index, np.arange(num_rows, num_rows + len(index))):
            return False
        num_rows += len(index)
    return True


def content_digest(*files: Path) -> str:
    """Return a sha256 of column names and values in row order; several files count as one."""
    # The digest leaves out the bytes: Parquet files contain the writer's name and version.
    sha256 = hashlib.sha256()
    schema = pq.read_schema(real_path(files[0]))
    num_rows = sum(pq.read_metadata(real_path(file)).num_rows for file in files)
    for name in schema.names:
        sha256.update(f"{name}:{num_rows}\n".encode())
        if pa.types.is_primitive(schema.field(name).type):
            arrays: Iterable[pa.Array] = _values(files, name)
        else:
            # Text adds the length of each value, -1 for NULL, then the bytes of all values.
            tables = [file.read(columns=[name]) for file in _open_each(files)]
            column = pa.concat_tables(tables).column(0).cast(pa.large_binary())
            texts = column.to_pylist()
            lengths = np.array([-1 if text is None else len(text) for text in texts], np.int64)
            content = np.frombuffer(b"".join(filter(None, texts)), dtype=np.uint8)
            arrays = (lengths, content)
        for values in arrays:
            sha256.update(np.ascontiguousarray(values).data)
    return sha256.hexdigest()


def _open_each(files: Iterable[Path]) -> Iterator[pq.ParquetFile]:
    """Yield each file, closed before the next is opened."""
    # Spark may write a training part of thousands of files, more than a process may have open.
    for file in files:
        with pq.ParquetFile(real_path(file)) as opened:
            yield opened


def _values(files: Iterable[Path], name: str) -> Iterator[pa.Array]:
    """Yield a numeric column's values, one array per row group; empty groups are left out."""
    for file in _open_each(files):
        for group in range(file.num_row_groups):
            if file.metadata.row_group(group).num_rows:
                yield numbers(file.read_row_group(group, columns=[name]).column(0))
