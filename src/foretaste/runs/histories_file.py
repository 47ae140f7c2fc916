"""``histories.parquet``: every kept interaction of a run, sorted by user, then item, and which of
them it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste.data.histories import Histories, sorted_pairs
from foretaste.data.part_files import PAIR_COLUMNS, integers
from foretaste.errors import DatasetError, RunError


def write_histories(path: Path, histories: Histories, in_training: NDArray[np.bool_]) -> None:
    """Write columns ``user_index`` and ``item_index``, int32, and ``in_training``, boolean."""
    columns = {
        "user_index": pa.array(histories.row_index()),
        "item_index": pa.array(histories.item_index),
        "in_training": pa.array(in_training),
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def read_histories(path: Path, *, num_users: int, num_items: int) -> Histories:
    """Read what ``write_histories`` wrote; RunError where it does not fit the given numbers."""
    with pq.ParquetFile(path) as file:
        table = file.read(columns=PAIR_COLUMNS)
    try:
        return sorted_pairs(
            *(integers(table[name]) for name in PAIR_COLUMNS),
            num_users=num_users,
            num_items=num_items,
            where="its pairs",
        )
    except DatasetError as error:
        raise RunError(f"{path} does not fit config.json: {error}") from error


def read_in_training(path: Path) -> NDArray[np.bool_]:
    """Which of the interactions the run was trained on, in the order of `read_histories`."""
    column = pq.read_table(path, columns=["in_training"])["in_training"]
    in_training: NDArray[np.bool_] = column.to_numpy().astype(bool)
    return in_training
