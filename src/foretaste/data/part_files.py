"""What is inside a part of a dataset: all of it, its order, its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foretaste.data.histories import is_strictly_sorted
from foretaste.errors import DatasetError

PAIR_COLUMNS = ["user_index", "item_index"]
"""Of every part but users and items."""


def read_table(path: Path | str) -> pa.Table:
    """A whole Parquet file; DatasetError where it is missing, damaged or holds what is no text."""
    try:
        table = pq.read_table(path)
        table.validate(full=True)
        _ = table.column_names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from None
    return table


def is_in_order(file: pq.ParquetFile) -> bool:
    """Whether pairs ascend by user, then item, without repeats; an index counts 0, 1, 2, ..."""
    if file.schema_arrow.names == PAIR_COLUMNS:
        return _are_pairs_sorted(file)
    num_rows = 0
    for index in _values(file, file.schema_arrow.names[0]):
        if not np.array_equal(index, np.arange(num_rows, num_rows + len(index))):
            return False
        num_rows += len(index)
    return True


def content_digest(file: pq.ParquetFile) -> str:
    """A sha256 of column names and values in row order, whatever engine or file holds them."""
    sha256 = hashlib.sha256()
    for name in file.schema_arrow.names:
        sha256.update(f"{name}:{file.metadata.num_rows}\n".encode())
        for values in _plain_arrays(file, name):
            sha256.update(np.ascontiguousarray(values).data)
    return sha256.hexdigest()


def _are_pairs_sorted(file: pq.ParquetFile) -> bool:
    last = (-1, -1)
    for users, items in zip(*(_values(file, name) for name in PAIR_COLUMNS), strict=True):
        if last >= (users[0], items[0]) or not is_strictly_sorted(users, items):
            return False
        last = (users[-1], items[-1])
    return True


def _values(file: pq.ParquetFile, name: str) -> Iterator[Any]:
    """A column of integers, one array after the other; none of them is empty."""
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows:
            yield file.read_row_group(group, columns=[name]).column(0).to_numpy()


def _plain_arrays(file: pq.ParquetFile, name: str) -> Iterator[Any]:
    """Integers as they are; text as the length of each value, -1 for none, then all bytes."""
    if pa.types.is_integer(file.schema_arrow.field(name).type):
        yield from _values(file, name)
        return
    texts = file.read(columns=[name]).column(0).cast(pa.large_binary())
    yield pc.fill_null(pc.binary_length(texts), -1).cast(pa.int64()).to_numpy()
    yield np.frombuffer(b"".join(texts.drop_null().to_pylist()), dtype=np.uint8)
