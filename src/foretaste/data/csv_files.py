"""Delimited text files: their header, their lines, and what DuckDB says of them in our words."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pyarrow as pa

from foretaste.errors import InputError

_DELIMITERS = (",", "\t", ";", "|")
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_LONG_FIELD = 1 << 24
_NOT_UTF8 = "is not UTF-8 text; convert the file, for example with iconv -t UTF-8"


def read_header(path: Path) -> tuple[str, list[str]]:
    """The delimiter of a file and its column names, from the first line.

    Raises InputError where the file is empty, not text, or names a column twice.
    """
    try:
        with _open_text(path) as file:
            line = next(iter(file), "")
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not line.strip():
        raise InputError(f"{path}: is empty; expected a first line with the column names")
    if "\N{REPLACEMENT CHARACTER}" in line:
        raise InputError(f"{path}, line 1: {_NOT_UTF8}")
    by_count = {delimiter: len(_split(line, delimiter)) for delimiter in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda candidate: by_count[candidate])
    columns = _split(line, delimiter)
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise InputError(f"{path}, line 1: column {min(repeated)!r} is there more than once")
    return delimiter, columns


def find_value(path: Path, delimiter: str, position: int, value: str | None) -> int | None:
    """The line on which a column first has this value; None stands for nothing at all.

    A value loses its line once it is read, so this reads the file again: for an error only.
    """
    previous = csv.field_size_limit(_LONG_FIELD)
    try:
        with _open_text(path) as file:
            reader = csv.reader(file, delimiter=delimiter)
            next(reader)
            for row in reader:
                if row and (row[position] or None) == value:
                    return reader.line_num
    finally:
        csv.field_size_limit(previous)
    return None


def explain(message: str) -> str | None:
    """What DuckDB's message about a malformed row says, as file, line and example.

    None where the message is about something else; without a file where it names none.
    """
    if "CSV Parser state machine" in message:
        return r"mixes line endings, \n and \r\n; make them one, for example with dos2unix"
    line = re.search(r"CSV Error on Line: (\d+)", message)
    if line is None:
        return None
    file = re.search(r"^ *file = (.*)$", message, re.MULTILINE)
    original = re.search(r"^Original Line: ?(.*)$", message, re.MULTILINE)
    example = f": {original.group(1)[:200]!r}" if original else ""
    where = f"{_unescape(file.group(1)) if file else 'input'}, line {line.group(1)}"
    return f"{where}: {_reason(message)}{example}"


def _reason(message: str) -> str:
    fields = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if fields:
        return f"expected {fields.group(1)} fields, found {fields.group(2)}"
    if "unterminated quote" in message:
        return "a quote is opened and never closed"
    if "Invalid unicode" in message:
        return _NOT_UTF8
    if "Maximum line size" in message:
        return "is longer than 2 MB; a quote may be missing"
    return "cannot be parsed"


def _unescape(path: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", path)


def _split(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=False), [])


def _open_text(path: Path) -> io.TextIOWrapper:
    compression = _COMPRESSIONS.get(path.suffix.lower())
    stream = pa.input_stream(str(path), compression=compression, buffer_size=1 << 20)
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
