"""Lists of many users as one file, written as they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste.recommend.lists import batches
from foretaste.recommend.output import Output

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.lists import ListMaker, Lists, Made
    from foretaste.recommend.similar import SimilarListMaker


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written."""

    path: Path
    num_users: int
    """Users, or items about which was asked what is similar to them."""
    num_rows: int = 0
    """Recommended items, all users together."""
    num_short_lists: int = 0
    """Users with fewer items than asked: the catalogue or the candidates ran out."""
    num_popularity_lists: int = 0
    """Users answered in popularity order: training saw nothing of their history, or the run does
    not know them."""
    num_partial_histories: int = 0
    """Users of whose given history a part was ignored: training never saw those items."""
    notes: tuple[str, ...]
    """What callers should know of the ids they gave, and of the scores."""


def write_lists(
    output: Output,
    asked: pa.Table,
    items: IdTable,
    maker: ListMaker | SimilarListMaker,
    make: Callable[[NDArray[np.int64]], Made],
    progress: Callable[[int, int], None] | None,
    notes: tuple[str, ...] = (),
) -> Export:
    """Write the lists that ``make`` has for the rows of ``asked``, some rows at a time.

    ``asked`` has one column: whom each list is for.
    """
    counts: Counter[str] = Counter()
    schema = _lists_schema(asked.schema, items)
    with output.writer(schema) as write:
        for rows in batches(len(asked), maker.num_columns, maker.model.device):
            made = make(rows)
            write(_lists_table(asked.take(rows), items, made.lists, schema))
            counts.update(made.counts(maker.k))
            if progress is not None:
                progress(int(rows[-1]) + 1, len(asked))
    return Export(path=output.path, num_users=len(asked), notes=notes + maker.notes, **counts)


def _lists_schema(asked: pa.Schema, items: IdTable) -> pa.Schema:
    """Columns of the file: whom it is for, rank, item_id, score and, where there are any, title."""
    fields = [
        *asked,
        ("rank", pa.int32()),
        ("item_id", items.table.schema.field("id").type),
        ("score", pa.float32()),
    ]
    if items.has_column("title"):
        fields.append(("title", items.table.schema.field("title").type))
    return pa.schema(fields)


def _lists_table(asked: pa.Table, items: IdTable, lists: Lists, schema: pa.Schema) -> pa.Table:
    """Lists as one row per recommended item."""
    row, place = np.nonzero(lists.filled())
    item_index = lists.item_index[row, place]
    columns: list[Any] = [
        asked.column(0).take(row),
        pa.array((place + 1).astype(np.int32)),
        items.table.column("id").take(item_index),
        pa.array(lists.score[row, place]),
    ]
    if items.has_column("title"):
        columns.append(items.table.column("title").take(item_index))
    return pa.table(columns, schema=schema)
