"""Sources with an Arrow schema: Parquet files, and frames and sparse matrices in memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foretaste._util.files import real_path
from foretaste._util.formatting import shown
from foretaste.data.sources.source import (
    Column,
    Source,
    Storage,
    file_state,
    identifier,
    path_literal,
    refuse_nul,
)
from foretaste.errors import InputError

_SOURCES = (
    "source must be a path, a sequence of paths, a pandas or Polars DataFrame, a pyarrow Table, a "
    "SciPy sparse matrix or a GivenSplit"
)


def open_parquet(path: Path) -> Source:
    """A Parquet file; InputError if it cannot be read as one."""
    size, modified_ns = file_state(path)
    try:
        schema = pq.read_schema(real_path(path))
        _ = schema.names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
    # hive_partitioning is on by default: user_id=999/ anywhere in the path would replace the file's
    # own column.
    relation = f"read_parquet({path_literal(path)}, hive_partitioning=false)"
    return Source(
        name=str(path), relation=relation, columns=columns_of(schema, str(path)), size=size,
        modified_ns=modified_ns, path=path,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame(Source):
    """Interactions in memory, as an Arrow table of types that DuckDB reads."""

    table: pa.Table = field(repr=False)

    index_names: tuple[str, ...] = ()
    """The names of a pandas frame's index, which is not read."""

    @classmethod
    def open(cls, source: Any, name: str) -> Frame:
        """The source of a frame or a sparse matrix; errors call it ``name``.

        In a SciPy sparse matrix the row number is ``user_id``, the column number ``item_id``, and
        the value ``rating``. Every stored entry is a row: zeros count, and an entry that is stored
        twice is two rows. Raises InputError for any other object, and for a frame without columns.
        """
        try:
            table = _to_arrow(source)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            message = str(error)
            # For a column with values of several types Arrow's error has two parts: what, where.
            if isinstance(error, pa.ArrowException) and len(error.args) > 1:
                message = "; ".join(map(str, error.args))
                message += ". Make the column's values one type, such as text"
            raise InputError(f"{name}: cannot be turned into an Arrow table: {message}") from None
        table = pa.table([_plain(column) for column in table.columns], names=table.column_names)
        if not table.num_columns:
            raise InputError(
                f"{name}: is empty; it must have a column of users and one of items, and a row for "
                "each interaction"
            )
        columns = columns_of(table.schema, name)
        return cls(
            name=name, relation=f"frame_{id(table)}", columns=columns, size=table.nbytes,
            table=table, index_names=_index_names(source),
        )  # fmt: skip

    def locate(self, column: str, value: str | None) -> str:
        values = self.table[column]
        if self.columns[column].storage == "text":
            values = values.cast(pa.large_string())
            values = pc.if_else(pc.equal(values, ""), None, values)
        if value is None:
            matches = pc.is_null(values, nan_is_null=True)
        else:
            matches = pc.equal(values.cast(pa.large_string()), value)
        row = pc.index(matches, True).as_py()
        return self.name if row < 0 else f"{self.name}, row {row} (the first is 0)"

    def sha256(self) -> str:
        """The checksum of the Arrow stream. Unequal frames differ in it; equal ones may."""
        sink = _HashSink()
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), self.table.schema) as writer:
            writer.write_table(self.table)
        return sink.sha256.hexdigest()


def refuse_rows(source: Sequence[Any]) -> None:
    """Raise InputError for a sequence of rows in place of a sequence of paths."""
    # A list of two names looks like a list of two paths.
    rows = (part for part in source if isinstance(part, Sequence | Mapping | np.ndarray))
    row = next((part for part in rows if not isinstance(part, str | bytes)), None)
    if row is not None:
        kind = type(source).__name__
        raise InputError(f"{_SOURCES}; got a {kind} of rows such as {shown(row)}{_as_frame(row)}")


def _index_names(source: Any) -> tuple[str, ...]:
    names = source.index.names if hasattr(source, "iloc") else ()
    return tuple(str(name) for name in names if name is not None)


def _as_frame(source: Any) -> str:
    """The advice to make a frame from rows, or from columns by name."""
    if not isinstance(source, Sequence | Mapping | np.ndarray):
        return ""
    columns = "" if isinstance(source, Mapping) else ", columns=['user_id', 'item_id']"
    return f"; make a frame of it: pandas.DataFrame(...{columns})"


def _to_arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return pa.Table.from_pandas(source, preserve_index=False)
    if hasattr(source, "reset_index"):
        raise InputError(
            f"{_SOURCES}; got {type(source).__name__}; its reset_index() makes a frame of it"
        )
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return pa.table(source)
    if not hasattr(source, "tocoo"):
        hint = "; call its collect() first" if hasattr(source, "collect") else _as_frame(source)
        raise InputError(f"{_SOURCES}; got {type(source).__name__}{hint}")
    # Compressed formats only; coordinates have no structure to check.
    if hasattr(source, "check_format"):
        source.check_format(full_check=True)
    # `tocoo` keeps the stored entries. Other conversions add up repeated ones in the matrix's own
    # type, where uint8 128 + 128 is 0, and drop zeros.
    matrix = source.tocoo()
    values, is_entry = matrix.data, slice(None)
    if source.format == "bsr":
        # Blocks are padded with zeros that nobody stored.
        is_entry = values != 0
    if values.dtype.kind == "b":
        values = values.astype(np.int8)
    columns = {"user_id": matrix.row, "item_id": matrix.col, "rating": values}
    return pa.table({name: column[is_entry] for name, column in columns.items()})


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in a type that DuckDB reads."""
    if pa.types.is_dictionary(column.type):
        kind = column.type.value_type
        # Arrow cannot decode a dictionary of string views, which Polars gives.
        if pa.types.is_string_view(kind):
            kind = pa.large_string()
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind))
            for chunk in column.chunks
        ]
        return pa.chunked_array([chunk.dictionary_decode() for chunk in chunks], type=kind)
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if pa.types.is_decimal256(column.type):
        return column.cast(pa.string())
    return column


def columns_of(schema: pa.Schema, where: str) -> dict[str, Column]:
    """The columns of a schema; InputError if a name repeats."""
    names = Counter(name.lower() for name in schema.names)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise InputError(
            f"{where}: column {shown(min(repeated))} is there more than once, case aside; "
            "rename one"
        )
    refuse_nul(schema.names, where)
    return {
        column.name: Column(
            sql=identifier(column.name),
            storage=_storage(column.type),
            type_name=str(column.type),
        )
        for column in schema
    }


def _storage(kind: pa.DataType) -> Storage:
    if pa.types.is_dictionary(kind):
        return _storage(kind.value_type)
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_decimal(kind):
        return "decimal" if kind.precision <= 38 else "wide"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_timestamp(kind):
        return "moment" if kind.tz is None else "instant"
    return "moment" if pa.types.is_date(kind) else "other"


class _HashSink:
    """A file that keeps only the checksum of the bytes written to it."""

    closed = False

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""
