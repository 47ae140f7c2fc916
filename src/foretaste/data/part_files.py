"""A part of a dataset: its bytes, once they are known to be its own, and their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import open_regular, real_path
from foretaste.data.histories import Histories, is_strictly_sorted, sorted_pairs
from foretaste.errors import DatasetError

_PARQUET_END = b"PAR1"

PAIR_COLUMNS = ["user_index", "item_index"]
"""Columns of every part but users and items."""

_PAIRS = "user_index (int32), item_index (int32)"


def check_part(path: Path, sha256: str) -> None:
    """DatasetError where a file is missing or is not the one that the manifest lists."""
    with _opened(path) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    _compare(path, found, sha256)


def part_bytes(path: Path, sha256: str) -> pa.Buffer:
    """The bytes of the part that the manifest lists, for what is read to be what was checked.

    Raises DatasetError as `check_part` does, also where the file was replaced since that.
    """
    with _opened(path) as file:
        content = file.read()
    _compare(path, hashlib.sha256(content).hexdigest(), sha256)
    return pa.py_buffer(content)


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Yield a file that ends like Parquet; DatasetError where it is none or cannot be read."""
    if path.exists() and not path.is_file():
        raise DatasetError(f"{path}: is not a file; prepare the dataset again")
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_PARQUET_END)))
            # A file that was made longer, if only by a terabyte of nothing, is not read for it.
            if file.read(len(_PARQUET_END)) != _PARQUET_END:
                raise DatasetError(
                    f"{path}: does not match the manifest: sha256 not computed, as it does not end "
                    "like Parquet; prepare the dataset again"
                )
            file.seek(0)
            yield file
    except OSError as error:
        raise DatasetError(
            f"{path}: listed in the manifest, cannot be read: {error.strerror}; "
            "prepare the dataset again"
        ) from None


def _compare(path: Path, found: str, sha256: str) -> None:
    if found != sha256:
        raise DatasetError(
            f"{path}: does not match the manifest: sha256 {found[:12]}, expected {sha256[:12]}; "
            "open the dataset again if it was replaced meanwhile, else prepare it again"
        )


def read_table(path: Path | str, content: pa.Buffer | None = None) -> pa.Table:
    """A whole Parquet file, of these bytes where they were read already.

    Raises DatasetError where it is missing, damaged or holds what is no text.
    """
    try:
        # Not by pq.read_table, which imports pandas where it is installed: .2 s.
        with pq.ParquetFile(
            real_path(path) if content is None else pa.BufferReader(content)
        ) as file:
            table = file.read()
        table.validate(full=True)
        _ = table.column_names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from None
    return table


def read_pairs(path: Path, content: pa.Buffer, *, num_users: int, num_items: int) -> Histories:
    """The pairs of the part at ``path``, which has these bytes.

    Raises DatasetError where they are unsorted, repeated or out of bounds.
    """
    table = read_table(path, content)
    found = ", ".join(f"{field.name} ({field.type})" for field in table.schema)
    if found != _PAIRS or any(column.null_count for column in table.columns):
        raise DatasetError(
            f"{path}: expected {_PAIRS} without gaps, found {found:.200}; prepare the dataset again"
        )
    return pairs_in(table, num_users=num_users, num_items=num_items, where=str(path))


def pairs_in(table: pa.Table, *, num_users: int, num_items: int, where: str) -> Histories:
    """The pairs of a table as histories.

    Raises DatasetError, which begins with ``where``, for pairs that are unsorted, repeated or out
    of bounds.
    """
    users, items = (integers(table[name]) for name in PAIR_COLUMNS)
    return sorted_pairs(users, items, num_users=num_users, num_items=num_items, where=where)


def integers(column: pa.ChunkedArray) -> NDArray[Any]:
    """The values of a column of integers without gaps; by ``to_numpy``, pandas is imported."""
    chunks = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    empty = np.empty(0, dtype=column.type.to_pandas_dtype())
    return np.concatenate([empty, *chunks])


def is_in_order(file: pq.ParquetFile) -> bool:
    """True where pairs ascend by user, then item, without repeats; an index counts 0, 1, 2, ..."""
    if file.schema_arrow.names == PAIR_COLUMNS:
        last = (-1, -1)
        for users, items in zip(*(_values(file, name) for name in PAIR_COLUMNS), strict=True):
            if last >= (users[0], items[0]) or not is_strictly_sorted(users, items):
                return False
            last = (users[-1], items[-1])
        return True
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
        if pa.types.is_integer(file.schema_arrow.field(name).type):
            arrays: Iterable[Any] = _values(file, name)
        else:
            import pyarrow.compute as pc

            # Of text, the length of each value, -1 for none, then all bytes.
            texts = file.read(columns=[name]).column(0).cast(pa.large_binary())
            lengths = pc.fill_null(pc.binary_length(texts), -1).cast(pa.int64()).to_numpy()
            content = np.frombuffer(b"".join(texts.drop_null().to_pylist()), dtype=np.uint8)
            arrays = (lengths, content)
        for values in arrays:
            sha256.update(np.ascontiguousarray(values).data)
    return sha256.hexdigest()


def _values(file: pq.ParquetFile, name: str) -> Iterator[Any]:
    """A column of integers, one array after the other; none of them is empty."""
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows:
            yield file.read_row_group(group, columns=[name]).column(0).to_numpy()
