"""Interactions that are in memory already: frames and sparse matrices, as Arrow tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from foretaste._util.formatting import shown
from foretaste.errors import InputError

_SOURCES = (
    "source must be a path, a sequence of paths, a pandas or Polars DataFrame, a pyarrow Table, a "
    "SciPy sparse matrix or a GivenSplit"
)


def to_arrow(source: Any) -> pa.Table:
    """An Arrow table of a frame, in types that DuckDB reads, or of a sparse matrix.

    Of a SciPy sparse matrix the row number is ``user_id``, the column number ``item_id``, and the
    value ``rating``; zeros, stored or not, are no interactions. Raises InputError for anything
    that is none of these.
    """
    try:
        table = _to_arrow(source)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"table: cannot be turned into an Arrow table: {_said(error)}") from None
    return pa.table([_plain(column) for column in table.columns], names=table.column_names)


def refuse_rows(source: Sequence[Any]) -> None:
    """Raise InputError for a sequence of rows in the place of a sequence of paths."""
    # A list of two names looks like a list of two paths.
    rows = (part for part in source if isinstance(part, Sequence | Mapping | np.ndarray))
    row = next((part for part in rows if not isinstance(part, str | bytes)), None)
    if row is not None:
        kind = type(source).__name__
        raise InputError(f"{_SOURCES}; got a {kind} of rows such as {shown(row)}{_as_frame(row)}")


def _as_frame(source: Any) -> str:
    """How a frame is made of rows, or of columns by name."""
    if not isinstance(source, Sequence | Mapping | np.ndarray):
        return ""
    columns = "" if isinstance(source, Mapping) else ", columns=['user_id', 'item_id']"
    return f"; make a frame of it: pandas.DataFrame(...{columns})"


def _said(error: Exception) -> str:
    """An error's message. Of a column that holds values of several types Arrow says what and
    where in two."""
    if not isinstance(error, pa.ArrowException) or len(error.args) < 2:
        return str(error)
    return f"{'; '.join(map(str, error.args))}. Make the column's values one type, such as text"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return _decoded(column)
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if pa.types.is_decimal256(column.type):
        return column.cast(pa.string())
    return column


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary column. Arrow cannot look up views, which Polars hands out."""
    kind = column.type.value_type
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind))
        for chunk in column.chunks
    ]
    return pa.chunked_array([chunk.dictionary_decode() for chunk in chunks], type=kind)


def frame_sha256(table: pa.Table) -> str:
    """Of the frame as an Arrow stream: equal frames may differ in it, unequal ones do."""
    sink = _HashSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        writer.write_table(table)
    return sink.sha256.hexdigest()


def _to_arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return pa.Table.from_pandas(source, preserve_index=False)
    if hasattr(source, "tocsr"):
        return _from_sparse(source)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return pa.table(source)
    hint = "; call its collect() first" if hasattr(source, "collect") else _as_frame(source)
    raise InputError(f"{_SOURCES}; got {type(source).__name__}{hint}")


def _from_sparse(matrix: Any) -> pa.Table:
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"matrix: holds values of type {matrix.dtype}; they must be numbers")
    if len(matrix.shape) != 2:
        raise InputError(f"matrix: has {len(matrix.shape)} dimensions; users and items make two")
    canonical = matrix.tocsr(copy=True)
    canonical.check_format(full_check=True)
    canonical.sum_duplicates()
    canonical.eliminate_zeros()
    rows = np.repeat(np.arange(canonical.shape[0]), np.diff(canonical.indptr))
    values = canonical.data.astype(np.int8) if matrix.dtype.kind == "b" else canonical.data
    return pa.table({"user_id": rows, "item_id": canonical.indices, "rating": values})


class _HashSink:
    """A file that only remembers the checksum of what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""
