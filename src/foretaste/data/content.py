"""Content of Parquet files that were written: its order and its digest, whatever holds it.

Apart from part_files, for training to import neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.files import real_path
from foretaste.data.histories import is_strictly_sorted
from foretaste.data.part_files import PAIR_COLUMNS


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


def content_digest(*files: Path | pa.NativeFile) -> str:
    """A sha256 of column names and values in row order, whatever engine holds them, in however
    many files of the same columns; one of them is open at a time."""
    sha256 = hashlib.sha256()
    found = [(file.schema_arrow, file.metadata.num_rows) for file in _opened(files)]
    schema, num_rows = found[0][0], sum(count for _, count in found)
    for name in schema.names:
        sha256.update(f"{name}:{num_rows}\n".encode())
        if pa.types.is_integer(schema.field(name).type):
            arrays: Iterable[Any] = (
                values for file in _opened(files) for values in _values(file, name)
            )
        else:
            import pyarrow.compute as pc

            # Of text, the length of each value, -1 for none, then all bytes.
            tables = [file.read(columns=[name]) for file in _opened(files)]
            texts = pa.concat_tables(tables).column(0).cast(pa.large_binary())
            lengths = pc.fill_null(pc.binary_length(texts), -1).cast(pa.int64()).to_numpy()
            content = np.frombuffer(b"".join(texts.drop_null().to_pylist()), dtype=np.uint8)
            arrays = (lengths, content)
        for values in arrays:
            sha256.update(np.ascontiguousarray(values).data)
    return sha256.hexdigest()


def _opened(files: Iterable[Path | pa.NativeFile]) -> Iterator[pq.ParquetFile]:
    """Each file, closed before the next is opened."""
    for file in files:
        with pq.ParquetFile(real_path(file) if isinstance(file, Path) else file) as opened:
            yield opened


def _values(file: pq.ParquetFile, name: str) -> Iterator[Any]:
    """A column of integers, one array after the other; none of them is empty."""
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows:
            yield file.read_row_group(group, columns=[name]).column(0).to_numpy()
