"""``histories.parquet``: every kept interaction of a run, sorted by user, then item."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste.data.histories import Histories, sorted_pairs
from foretaste.errors import DatasetError, RunError


def write_histories(path: Path, histories: Histories) -> None:
    """Write columns ``user_index`` and ``item_index``, int32."""
    columns = {
        "user_index": pa.array(histories.row_index()),
        "item_index": pa.array(histories.item_index),
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def read_histories(path: Path, *, num_users: int, num_items: int) -> Histories:
    """Read what ``write_histories`` wrote; RunError where it does not fit the given numbers."""
    table = pq.read_table(path, columns=["user_index", "item_index"])
    try:
        return sorted_pairs(
            table["user_index"].to_numpy(),
            table["item_index"].to_numpy(),
            num_users=num_users,
            num_items=num_items,
            where="its pairs",
        )
    except DatasetError as error:
        raise RunError(f"{path} does not fit config.json: {error}") from error
