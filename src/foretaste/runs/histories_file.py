"""``histories.parquet``: every kept interaction of a run, sorted by user, then item, and which of
them it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import real_path
from foretaste.data.histories import Histories
from foretaste.data.part_files import pairs_in, read_table
from foretaste.errors import DatasetError, RunError


def write_histories(path: Path, histories: Histories, in_training: NDArray[np.bool_]) -> None:
    """Write columns ``user_index`` and ``item_index``, int32, and ``in_training``, boolean."""
    columns = {
        "user_index": pa.array(histories.row_index()),
        "item_index": pa.array(histories.item_index),
        "in_training": pa.array(in_training),
    }
    pq.write_table(pa.table(columns), real_path(path), compression="zstd")


def read_histories(
    path: Path, *, num_users: int, num_items: int
) -> tuple[Histories, NDArray[np.bool_]]:
    """Read what ``write_histories`` wrote; RunError where it does not fit the given numbers."""
    try:
        table = read_table(path)
    except DatasetError as error:
        raise RunError(str(error)) from error
    try:
        histories = pairs_in(table, num_users=num_users, num_items=num_items, where="its pairs")
    except DatasetError as error:
        raise RunError(f"{path} does not fit config.json: {error}") from error
    # Bits have no DLPack; ``to_numpy`` imports pandas, and ``cast`` Arrow's functions.
    return histories, np.concatenate([np.zeros(0, bool), *map(_bits, table["in_training"].chunks)])


def _bits(chunk: pa.BooleanArray) -> NDArray[np.bool_]:
    """The values of an array that lacks none."""
    words = np.frombuffer(chunk.buffers()[1], dtype=np.uint8)
    bits = np.unpackbits(words, bitorder="little")[chunk.offset : chunk.offset + len(chunk)]
    return bits.astype(bool)
