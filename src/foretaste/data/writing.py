"""The files of a dataset and their digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foretaste.data import steps
from foretaste.data.engine import Engine
from foretaste.data.histories import is_strictly_sorted
from foretaste.data.manifest import Part, file_sha256
from foretaste.data.sources import quoted
from foretaste.errors import DatasetError, InputError


def write_parts(
    engine: Engine, directory: Path, held_parts: list[str], item_columns: list[str]
) -> dict[str, Part]:
    """Write every Parquet file; what was written, by file name."""
    queries = {"train": steps.PAIRS_FILE.format(rows="train")}
    for part in held_parts:
        rows = f"(SELECT user_code, item_code FROM held WHERE part = '{part}')"
        queries[part] = steps.PAIRS_FILE.format(rows=rows)
    queries["users"] = steps.USERS_FILE
    queries["items"] = steps.ITEMS_FILE.format(
        item_columns="".join(f", {name}" for name in item_columns),
        described=steps.DESCRIBED if item_columns else "",
    )
    return {
        f"{name}.parquet": _write(engine, sql, directory / f"{name}.parquet")
        for name, sql in queries.items()
    }


def _write(engine: Engine, sql: str, path: Path) -> Part:
    try:
        engine.run(f"COPY ({sql}) TO {quoted(str(path))} (FORMAT parquet)")
    except InputError as error:
        raise DatasetError(f"{path}: cannot be written: {error}") from None
    table = pq.read_table(path)
    _check_order(table, path)
    return Part(
        num_rows=table.num_rows, sha256=file_sha256(path), content_digest=content_digest(table)
    )


def _check_order(table: pa.Table, path: Path) -> None:
    """The engine is trusted to sort, and was caught not to; a reader would refuse the file."""
    index = table.column(0).to_numpy()
    if table.column_names == ["user_index", "item_index"]:
        in_order = is_strictly_sorted(index, table.column(1).to_numpy())
    else:
        in_order = np.array_equal(index, np.arange(len(index)))
    assert in_order, f"{path.name} came out unsorted"


def content_digest(table: pa.Table) -> str:
    """A sha256 of column names and values in row order, whatever engine or file holds them."""
    sha256 = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        sha256.update(f"{name}:{table.num_rows}\n".encode())
        for values in _plain_arrays(column):
            sha256.update(np.ascontiguousarray(values).data)
    return sha256.hexdigest()


def _plain_arrays(column: pa.ChunkedArray) -> list[Any]:
    """Integers as they are; text as the length of each value, -1 for none, then all bytes."""
    if pa.types.is_integer(column.type):
        return [column.to_numpy()]
    texts = column.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(texts), -1).cast(pa.int64())
    joined = b"".join(texts.drop_null().to_pylist())
    return [lengths.to_numpy(), np.frombuffer(joined, dtype=np.uint8)]
