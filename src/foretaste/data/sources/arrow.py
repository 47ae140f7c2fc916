"""Sources with an Arrow schema: Parquet files, and frames and sparse matrices in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.documents import Json
from foretaste._util.files import real_path
from foretaste._util.formatting import short_repr
from foretaste.data.manifest import MATRIX
from foretaste.data.sources.source import (
    Column,
    Source,
    Storage,
    file_state,
    path_literal,
    repeated_names,
)
from foretaste.errors import InputError

_SOURCES = (
    "source must be a path, a sequence of paths, a pandas or Polars DataFrame, a pyarrow Table, a "
    "SciPy sparse matrix or a GivenSplit"
)


def open_parquet(path: Path) -> Source:
    """Return a Parquet file; InputError if the file cannot be read as Parquet."""
    size, modified_ns = file_state(path)
    try:
        schema = pq.read_schema(real_path(path))
        _ = schema.names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
    # hive_partitioning is on by default: user_id=999/ anywhere in the path would replace the file's
    # own column.
    columns = ", ".join(f"c{position}" for position in range(len(schema)))
    rows = f"read_parquet({path_literal(path)}, hive_partitioning=false) AS rows({columns})"
    return Source(
        name=str(path), relation=f"(SELECT * FROM {rows})", size=size, modified_ns=modified_ns,
        columns=number_columns(schema.names, schema.types), repeated=repeated_names(schema.names),
        path=path,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame(Source):
    """Interactions in memory. `reading` makes an Arrow table of the columns that are read, because
    other columns may have values that no Arrow table accepts."""

    convert: Callable[[str], pa.Table] = field(repr=False)
    """Function that makes a table of one column, by its name."""

    table: pa.Table = field(repr=False)
    """The columns that are read, by their names in a query, in types that DuckDB reads."""

    given: object = field(repr=False)
    """The frame or matrix itself."""

    index_names: tuple[str, ...] = ()
    """The names of a pandas frame's index, which is not read."""

    @classmethod
    def open(cls, source: object, name: str) -> Frame:
        """Return the source of a frame or a sparse matrix; errors call it ``name``.

        In a SciPy sparse matrix the row number is ``user_id``, the column number ``item_id``, and
        the value ``rating``. Every stored entry is a row: zeros count, and an entry stored
        twice is two rows. Raises InputError for any other object, and for a frame without columns.
        """
        try:
            names, convert = _names_and_columns(source)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(f"{name}: cannot be turned into an Arrow table: {error}") from None
        if not names:
            raise InputError(
                f"{name}: is empty; it must have a column of users and a column of items, and "
                "a row for each interaction"
            )
        return cls(
            name=name, relation="", columns=number_columns(names, [pa.null()] * len(names)), size=0,
            convert=convert, table=pa.table({}), given=source, index_names=_index_names(source),
            repeated=repeated_names(names),
        )  # fmt: skip

    @property
    def identity(self) -> Hashable:
        return id(self.given)

    def reading(self, names: Iterable[str]) -> Self:
        columns, values = dict(self.columns), {}
        for name in names:
            column, type_name = self._convert(name)
            columns[name] = replace(_column(columns[name].sql, column.type), type_name=type_name)
            values[columns[name].sql] = column
        table = pa.table(values)
        return replace(
            self, table=table, columns=columns, size=table.nbytes,
            relation=f"frame_{id(table)}",
        )  # fmt: skip

    def _convert(self, name: str) -> tuple[pa.ChunkedArray, str]:
        """Return the column and its former type; InputError if Arrow cannot hold its values."""
        try:
            column = self.convert(name).column(0)
            return _plain_column(column), str(column.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            problem = error.args[0] if isinstance(error, pa.ArrowException) else error
            one_type = (
                f"; make its values one type, such as text: frame[{short_repr(name)}].astype(str)"
            )
            # A bare ValueError comes from `_check_offsets`, which has its own advice.
            advice = "" if type(error) is ValueError else f"{one_type} in pandas"
            raise InputError(
                f"{self.name}: column {short_repr(name)} cannot be turned into an Arrow column: "
                f"{problem}{advice}"
            ) from None

    def place(self, row: int, num_rows: int) -> str:
        return f"{self.name}, row {row - 1} (the first is 0)"

    def provenance(self) -> dict[str, Json]:
        is_matrix = hasattr(self.given, "tocoo")
        return super().provenance() | ({"read_as": MATRIX} if is_matrix else {})

    def sha256(self) -> str:
        """Return the checksum of the Arrow stream; equal frames may have different checksums."""
        sink = _HashSink()
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), self.table.schema) as writer:
            writer.write_table(self.table)
        return sink.sha256.hexdigest()


def refuse_rows(source: Sequence[object]) -> None:
    """Raise InputError for a sequence of rows instead of a sequence of paths."""
    # A list of two names looks like a list of two paths.
    rows = (part for part in source if isinstance(part, Sequence | Mapping | np.ndarray))
    row = next((part for part in rows if not isinstance(part, str | bytes)), None)
    if row is not None:
        kind = type(source).__name__
        raise InputError(
            f"{_SOURCES}; got a {kind} of rows such as {short_repr(row)}{_frame_advice(row)}"
        )


def _index_names(source: Any) -> tuple[str, ...]:
    names = source.index.names if hasattr(source, "iloc") else ()
    return tuple(str(name) for name in names if name is not None)


def _frame_advice(source: object) -> str:
    """Return the advice to make a frame from rows, or from columns by name."""
    if not isinstance(source, Sequence | Mapping | np.ndarray):
        return ""
    columns = "" if isinstance(source, Mapping) else ", columns=['user_id', 'item_id']"
    return f"; make a frame of it: pandas.DataFrame(...{columns})"


def _names_and_columns(source: Any) -> tuple[list[str], Callable[[str], pa.Table]]:
    """Return the names of a frame's columns, and a function that makes a table of one column."""
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        names = list(map(str, source.columns))

        def read_pandas(name: str) -> pa.Table:
            position = names.index(name)
            column = source.iloc[:, position : position + 1]
            table = pa.Table.from_pandas(column, preserve_index=False)
            if column.dtypes.iloc[0].kind == "O" and pa.types.is_timestamp(table.schema.types[0]):
                _check_offsets(column.iloc[:, 0])
            return table

        return names, read_pandas
    # Polars has types that Arrow lacks, such as integers of 128 bits.
    if hasattr(source, "get_columns"):
        return list(source.columns), lambda name: pa.table(source.select([name]))
    table = _to_arrow(source)
    names = table.column_names
    return names, lambda name: table.select([names.index(name)])


def _check_offsets(times: Iterable[object]) -> None:
    """Raise ValueError if some times lack a UTC offset: Arrow would take these times for UTC."""
    # NaT is not equal to itself.
    stored = ((row, t) for row, t in enumerate(times) if isinstance(t, datetime) and t == t)
    is_naive = {row: time.tzinfo is None for row, time in stored}
    first = next(iter(is_naive), 0)
    for row in is_naive:
        if is_naive[row] != is_naive[first]:
            one, other = (first, row) if is_naive[first] else (row, first)
            raise ValueError(
                f"the time in row {one} (the first is 0) has no UTC offset, and that in row "
                f"{other} has one; pandas.to_datetime(..., utc=True) takes the former for UTC"
            )


def _to_arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "reset_index"):
        raise InputError(
            f"{_SOURCES}; got {type(source).__name__}; its reset_index() makes a frame of it"
        )
    if isinstance(source, pa.Array | pa.ChunkedArray) or hasattr(source, "to_frame"):
        raise InputError(
            f"{_SOURCES}; got {type(source).__name__}, which is one column; give a frame with a "
            "column of users and a column of items"
        )
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return pa.table(source)
    if not hasattr(source, "tocoo"):
        hint = "; call its collect() first" if hasattr(source, "collect") else _frame_advice(source)
        raise InputError(f"{_SOURCES}; got {type(source).__name__}{hint}")
    # Only compressed formats have a structure to check, unlike coordinates.
    if hasattr(source, "check_format"):
        source.check_format(full_check=True)
    # `tocoo` keeps the stored entries. Other conversions drop zeros, and add up repeated entries in
    # the matrix's own type, so that uint8 128 + 128 is 0.
    matrix = source.tocoo()
    values, is_entry = matrix.data, slice(None)
    if source.format == "bsr":
        # The padding of blocks has zeros that nobody stored.
        is_entry = values != 0
    if values.dtype.kind == "b":
        values = values.astype(np.int8)
    columns = {"user_id": matrix.row, "item_id": matrix.col, "rating": values}
    return pa.table({name: column[is_entry] for name, column in columns.items()})


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that DuckDB reads."""
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


def number_columns(names: Sequence[str], types: Sequence[pa.DataType]) -> dict[str, Column]:
    """Return columns called c0, c1, ... in a query, because an unread column may have any name and
    DuckDB ignores case in names. Names that several columns share are left out."""
    repeated = repeated_names(names)
    return {
        name: _column(f"c{position}", kind)
        for position, (name, kind) in enumerate(zip(names, types, strict=True))
        if name not in repeated
    }


def _column(sql: str, kind: pa.DataType) -> Column:
    column = Column(sql=sql, storage=_storage(kind), type_name=str(kind))
    if not _is_list(kind):
        return column
    return replace(column, values=sql, element=_storage(kind.value_type))


def _is_list(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )


def _storage(kind: pa.DataType) -> Storage:
    if pa.types.is_dictionary(kind):
        return _storage(kind.value_type)
    # A column without values has the type null, and a column of any type may lack all its values.
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_decimal(kind):
        return "decimal" if kind.precision <= 38 else "wide"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_timestamp(kind):
        return "moment" if kind.tz is None else "instant"
    if isinstance(kind, pa.UuidType):
        return "uuid"
    if pa.types.is_boolean(kind):
        return "truth"
    return "moment" if pa.types.is_date(kind) else "other"


class _HashSink:
    """A file that keeps only the checksum of the written bytes."""

    closed = False

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""
