"""How a file of delimited text is written: what was said of it, and its first row."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from foretaste._util.formatting import shown
from foretaste.data.config import FileFormat
from foretaste.data.csv_files import (
    not_utf8,
    numbered_rows,
    open_bytes,
    open_text,
    quoted,
    quotes_as_they_are,
)
from foretaste.errors import InputError

_DELIMITERS = ("::", ",", "\t", ";", "|")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MAX_COLUMNS = 10_000
LONG_LINE = 1 << 21
"""Characters that are read of a file to see how it is written."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one file is written, found out in full."""

    delimiter: str
    encoding: str
    has_quotes: bool
    """Whether a field may stand in double quotes."""

    has_header: bool
    """Whether the first row holds the column names."""

    names: tuple[str, ...]
    """The name of every field, in order."""

    said: FileFormat
    """What was said of the file; the rest was found out."""

    @property
    def read_as(self) -> str:
        """What it is read as, in words; of this the file's bytes may decide nothing."""
        columns = "a header" if self.has_header else f"columns {','.join(self.names)}"
        return f"text, delimiter {self.delimiter!r}, {columns}"

    def relation(self, path: str, compression: str | None) -> str:
        """What stands after FROM in DuckDB; columns are c0, c1, ... by position.

        Names that differ in case only are one name to DuckDB. ``path`` is a SQL literal.
        """
        quote = '"' if self.has_quotes else ""
        declared = ", ".join(f"c{position}: 'VARCHAR'" for position in range(len(self.names)))
        return (
            f"read_csv({path}, auto_detect=false, strict_mode=true, header={self.has_header}, "
            f"delim={quoted(self.delimiter)}, quote='{quote}', escape='{quote}', "
            f"encoding='{self.encoding}', compression='{compression or 'none'}', "
            f"hive_partitioning=false, columns={{{declared}}})"
        )

    def find(self, path: Path, column: str, value: str | None) -> int | None:
        """The line on which a column first has this value; None stands for nothing at all.

        A value loses its line once it is read, so this reads the file again: for an error only.
        """
        position = self.names.index(column)
        rows = self.rows(path)
        return next((line for line, row in rows if (row[position] or None) == value), None)

    def rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Every row below the header, with the number of its last line; blank lines left out."""
        with open_text(path, self.encoding) as file:
            numbered = numbered_rows(file, self.delimiter, self.has_quotes)
            if self.has_header:
                next(numbered)
            yield from ((line, row) for line, row in numbered if row not in ([], [""]))


def read_dialect(path: Path, format: FileFormat) -> Dialect:
    """How a file is written: as ``format`` says, and by its first row what that leaves open.

    Raises InputError where the file is empty, not text, names a column twice, or its first row
    is not what ``format`` says.
    """
    text = start_of_text(path, format)
    delimiter = format.delimiter or _likely_delimiter(text, format.columns)
    has_quotes = _has_quotes(delimiter, format.quote == "double")
    try:
        fields = _first_row(text, delimiter, has_quotes, strict=True)
    except csv.Error as error:
        raise InputError(
            f"{path}, line 1: cannot be parsed ({error}); {quotes_as_they_are(format)}: "
            f"{shown(text[:300])}"
        ) from None
    if format.columns is None:
        _check_header(path, fields)
    else:
        _check_first_row(path, fields, delimiter, format)
    return Dialect(
        delimiter=delimiter,
        encoding=format.encoding,
        has_quotes=has_quotes,
        has_header=format.columns is None,
        names=tuple(format.columns or fields),
        said=format,
    )


def start_of_text(path: Path, format: FileFormat) -> str:
    """The first 2 MB of a file, whose first line is sound."""
    try:
        with open_bytes(path) as stream:
            _check_mark(path, stream.read(2), format)
        with open_text(path, format.encoding) as file:
            text = file.read(LONG_LINE)
    except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    line = _first_line(text)
    if not line.strip():
        problem = "its first line is blank" if line else "is empty"
        raise InputError(f"{path}: {problem}; expected a first line with the column names")
    if "\N{REPLACEMENT CHARACTER}" in line:
        raise InputError(f"{path}, line 1: {not_utf8(format)}")
    if len(line) == LONG_LINE:
        raise InputError(f"{path}, line 1: is longer than 2 MB; is it text with line breaks?")
    return text


def _check_mark(path: Path, start: bytes, format: FileFormat) -> None:
    if format.encoding != "utf-16" and start in _UTF16_MARKS:
        raise InputError(f"{path}: is UTF-16 text; say so with {format.option('encoding')} utf-16")
    if format.encoding == "utf-16" and start != _UTF16_MARKS[0]:
        raise InputError(
            f"{path}: does not begin with the byte order mark of little-endian UTF-16; convert "
            "it, for example with iconv -f UTF-16 -t UTF-8"
        )


def _likely_delimiter(text: str, columns: tuple[str, ...] | None) -> str:
    """Of the common ones, that which makes as many fields as there are columns, or most fields."""
    line = _first_line(text)

    def rank(delimiter: str) -> tuple[bool, int]:
        has_quotes = _has_quotes(delimiter, True)
        num_fields = len(_first_row(line, delimiter, has_quotes, strict=False))
        return columns is not None and num_fields == len(columns), num_fields

    return max(_DELIMITERS, key=rank)


def _has_quotes(delimiter: str, asked: bool) -> bool:
    """Files with delimiters of several characters are written without quoting."""
    return asked and len(delimiter) == 1


def _first_line(text: str) -> str:
    return io.StringIO(text, newline="").readline()


def _first_row(text: str, delimiter: str, has_quotes: bool, *, strict: bool) -> list[str]:
    lines = io.StringIO(text, newline="")
    return next(numbered_rows(lines, delimiter, has_quotes, strict=strict))[1]


def _check_header(path: Path, names: list[str]) -> None:
    if len(names) > _MAX_COLUMNS:
        raise InputError(
            f"{path}, line 1: has {len(names):,} columns, more than {_MAX_COLUMNS:,}; each "
            "row must be one interaction, with a column of users and one of items"
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{path}, line 1: column {shown(min(repeated))} is there more than once")
    refuse_nul(names, f"{path}, line 1")


def refuse_nul(names: Iterable[str], where: str) -> None:
    """Raise InputError for a column name with a NUL character, which ends a name in SQL."""
    name = next((name for name in names if "\0" in name), None)
    if name is not None:
        raise InputError(
            f"{where}: column {shown(name)} has a NUL character in its name; rename it"
        )


def _check_first_row(path: Path, fields: list[str], delimiter: str, format: FileFormat) -> None:
    names, option = format.columns or (), format.option("columns")
    example = shown(delimiter.join(fields))
    if len(fields) != len(names):
        raise InputError(
            f"{path}, line 1: has {len(fields)} fields between {delimiter!r}, and {option} names "
            f"{len(names)}, {','.join(names)}; name every one, with - for what is not read: "
            f"{example}"
        )
    if any(_names_itself(field, name) for field, name in zip(fields, names, strict=True)):
        raise InputError(
            f"{path}, line 1: holds column names: {example}; {option} is for files without them, "
            "so leave it out"
        )


def _names_itself(field: str, name: str) -> bool:
    """Whether a field is the name of its column, but for case and punctuation."""
    field, name = (re.sub(r"[\W_]", "", text).lower() for text in (field, name))
    return field == name and not re.fullmatch(r"\d*", name)
