"""Ids from a file: users to answer, items in stock, items to leave out."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.formatting import did_you_mean, shown
from foretaste._util.settings import AnyPath, checked
from foretaste.errors import InputError
from foretaste.recommend.inputs import Id

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_ids(path: Path | str) -> list[Id]:
    """The ids in a file, in order, repeats included.

    ``.parquet``: the first column, integers or text. ``.csv`` and ``.tsv``: the first column below
    a header line. Anything else: one id per line, as it stands. Blank lines, a byte order mark and
    Windows line ends are passed over. Raises InputError naming the file and the line.
    """
    path = checked("path", path, AnyPath)
    # Unlike Path's, these raise nothing, however odd or long a name is.
    if not os.path.exists(path):  # noqa: PTH110
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"{path}: is a directory, a pipe or a device; name a file that holds ids")
    suffix = path.suffix.lower()
    ids: Sequence[Id]
    if suffix == ".parquet":
        ids = _from_parquet(path)
    elif suffix in _SEPARATORS:
        ids = _from_csv(path, _SEPARATORS[suffix])
    else:
        ids = [line for line in _text(path).split("\n") if line.strip()]
    if not ids:
        raise InputError(f"{path}: holds no ids")
    return list(ids)


def _from_csv(path: Path, separator: str) -> list[str]:
    reader = csv.reader(StringIO(_text(path)), delimiter=separator, strict=True)
    try:
        header = next(reader, None)
        if header and header[0].lstrip("-").isdecimal():
            raise InputError(
                f"{path}, line 1: a header belongs here, found the id {shown(header[0])}; add a "
                "header, or name the file .txt with one id per line"
            )
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from error
    for line, row in rows:
        if not row[0].strip():
            raise InputError(f"{path}, line {line}: the id is empty")
    return [row[0] for _, row in rows]


def _from_parquet(path: Path) -> list[Id]:
    try:
        table = pq.read_table(path, columns=pq.read_schema(path).names[:1])
        table.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise InputError(f"{path}: is not readable Parquet: {error}") from error
    if not table.num_columns:
        raise InputError(f"{path}: has no column")
    kind = table.schema.field(0).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise InputError(
            f"{path}: column {shown(table.column_names[0])} is {kind!s:.200}; "
            "ids are integers or text"
        )
    ids: list[Id | None] = table.column(0).to_pylist()
    if None in ids:
        raise InputError(f"{path}, row {ids.index(None) + 1}: the id is missing")
    return [value for value in ids if value is not None]


def _text(path: Path) -> str:
    """The text of a file without byte order mark; every line end is a line feed."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text: {error}; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
