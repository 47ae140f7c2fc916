"""Files of delimited text: their format, from settings or the first row, and their rows with line
numbers."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from foretaste._util.files import real_path
from foretaste._util.formatting import shown
from foretaste.data.config import SKIPPED, FileFormat
from foretaste.data.sources.source import (
    READ_COMPRESSIONS,
    Column,
    Source,
    file_state,
    path_literal,
    quoted,
    refuse_by_content,
    refuse_nul,
    unreadable,
)
from foretaste.errors import InputError

LONG_LINE = 1 << 21
"""Number of characters that are read to find the format of a file."""

NOT_UTF8 = (
    "is not UTF-8 text; give its encoding with --encoding (such as cp1252, latin-1 or utf-16), or "
    "convert it, for example with iconv -t UTF-8"
)

QUOTES_AS_THEY_ARE = "--quote none takes quotes as they are"

TOO_LONG = "is longer than 2 MB; a quote may be missing, or the file was not written to its end"

_NATIVE = ("utf-8", "latin-1", "utf-16")
_DELIMITERS = ("::", ",", "\t", ";", "|")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LONG_FIELD = 1 << 24
_LONG_LINE_BYTES = 2_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class TextFile(Source):
    """A file of delimited text."""

    path: Path

    format: FileFormat
    """The settings of the file."""

    delimiter: str

    has_quotes: bool
    """True if a field may stand in double quotes."""

    names: tuple[str, ...]
    """The name of every field, in order."""

    @classmethod
    def open(cls, path: Path, format: FileFormat) -> TextFile:
        """The file in the given ``format``, completed from its first row.

        Raises InputError if the file is empty, no text, names a column twice, or its first row
        contradicts ``format``.
        """
        size, modified_ns = file_state(path)
        try:
            refuse_by_content(path)
        except OSError as error:
            raise unreadable(str(path), error) from None
        if format.is_items:
            format = replace(format, encoding=_encoding_of_items(path, format.encoding))
        text = start_of_text(path, format)
        delimiter = format.delimiter or _likely_delimiter(text, format.columns)
        has_quotes = format.quote == "double" and _may_have_quotes(delimiter)
        try:
            fields = _first_row(text, delimiter, has_quotes, strict=True)
        except csv.Error as error:
            advice = QUOTES_AS_THEY_ARE
            if format.is_items:
                advice = written_anew(path, format, delimiter)
            raise InputError(
                f"{path}, line 1: cannot be parsed ({error}): {shown(text[:300])}; {advice}"
            ) from None
        _check_first_row(path, fields, delimiter, format)
        names = format.columns or tuple(fields)
        columns = {
            name: Column(sql=f"c{position}", storage="text", type_name="text")
            for position, name in enumerate(names)
            if name != SKIPPED or format.columns is None
        }
        # Columns are declared by position, as DuckDB ignores case in names. All are text: DuckDB's
        # own detection reads 007 as 7. Declared and strict, it names the line of bad text, short or
        # long rows and open quotes.
        declared = ", ".join(f"c{position}: 'VARCHAR'" for position in range(len(names)))
        quote = '"' if has_quotes else ""
        # header is never guessed: with true, DuckDB silently eats the first row of a file that has
        # no line of names.
        encoding = format.encoding if format.encoding in _NATIVE else "utf-8"
        relation = (
            f"read_csv({path_literal(path)}, auto_detect=false, strict_mode=true, "
            f"header={format.columns is None}, delim={quoted(delimiter)}, quote='{quote}', "
            f"escape='{quote}', encoding='{encoding}', "
            f"compression='{_compression(path) or 'none'}', "
            f"hive_partitioning=false, columns={{{declared}}})"
        )
        return cls(
            name=str(path), relation=relation, columns=columns, size=size, modified_ns=modified_ns,
            path=path, format=format, delimiter=delimiter, has_quotes=has_quotes, names=names,
        )  # fmt: skip

    @property
    def read_as(self) -> str:
        # Part of a dataset's key: equal bytes read in two formats are two datasets.
        columns = f"columns {','.join(self.names)}" if self.format.columns else "a header"
        return f"text, delimiter {self.delimiter!r}, {columns}"

    def locate(self, column: str, value: str | None) -> str:
        self.check_unchanged()
        try:
            line = self.find(column, value)
        except OSError as error:
            raise unreadable(self.name, error) from None
        return self.name if line is None else f"{self.name}, line {line}"

    def find(self, column: str, value: str | None) -> int | None:
        """The first line on which a column has this value; None stands for a missing value.

        The engine does not keep the lines of values, so this reads the file again, for errors only.
        """
        position = self.names.index(column)
        return next((line for line, row in self.rows() if (row[position] or None) == value), None)

    def rows(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Every row below the header, with the number of its last line, without blank lines.

        With ``strict``, raises csv.Error for a misplaced quote.
        """
        with _open_text(self.path, self.format) as file:
            numbered = _numbered_rows(file, self.delimiter, self.has_quotes, strict=strict)
            if self.format.columns is None:
                next(numbered)
            yield from ((line, row) for line, row in numbered if row not in ([], [""]))

    def readable(self, copy: Path) -> TextFile:
        """The file itself; for an encoding that DuckDB lacks, a copy in UTF-8 at ``copy``.

        Raises InputError with the line that is not in the encoding.
        """
        if self.format.encoding in _NATIVE:
            return self
        copy.parent.mkdir(parents=True, exist_ok=True)
        line = 1
        with (
            _open_text(self.path, self.format) as text,
            pa.output_stream(real_path(copy), compression=_compression(self.path)) as written,
        ):
            while block := text.read(1 << 20):
                before, bad, _ = block.partition("\N{REPLACEMENT CHARACTER}")
                line += before.count("\n")
                if bad:
                    raise InputError(
                        f"{self.name}, line {line}: is not {self.format.encoding} text; give its "
                        "encoding with --encoding"
                    )
                written.write(block.encode())
        relation = self.relation.replace(path_literal(self.path), path_literal(copy))
        return replace(self, relation=relation)

    def check_lengths(self) -> None:
        """Raise InputError for a line of more than 2 MB."""
        # DuckDB silently leaves out such a line if it fills the rest of a buffer, as in a file that
        # was allocated and not written to its end (seen above 32 MB). Elsewhere DuckDB does not
        # always name the line.
        limit = _LONG_LINE_BYTES * (2 if self.format.encoding == "utf-16" else 1)
        start = offset = 0
        try:
            with _open_bytes(self.path) as stream:
                while block := stream.read(limit):
                    end = _line_end(block)
                    first, last = block.find(end), block.rfind(end)
                    if offset + (len(block) if first < 0 else first) - start > limit:
                        line = _num_line_ends(self.path, start) + 1
                        raise InputError(f"{self.name}, line {line}: {TOO_LONG}")
                    if last >= 0:
                        start = offset + last + 1
                    offset += len(block)
        except (OSError, EOFError, pa.ArrowException) as error:
            raise InputError(f"{self.name}: cannot be read: {error}") from None


def whole_lines(format: FileFormat, name: str) -> FileFormat:
    """The format of a text with whole lines as its only column, ``name``."""
    return replace(format, delimiter="\x01", columns=(name,), quote="none")


def start_of_text(path: Path, format: FileFormat) -> str:
    """The first 2 MB of a file; InputError if its first line is empty, too long or no text."""
    try:
        with _open_bytes(path) as stream:
            mark = stream.read(2)
        if format.encoding != "utf-16" and mark in _UTF16_MARKS:
            raise InputError(f"{path}: is UTF-16 text; say so with --encoding utf-16")
        if format.encoding == "utf-16" and mark != _UTF16_MARKS[0]:
            raise InputError(
                f"{path}: does not begin with the byte order mark of little-endian UTF-16; convert "
                "it, for example with iconv -f UTF-16 -t UTF-8"
            )
        with _open_text(path, format) as file:
            text = file.read(LONG_LINE)
    except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    line = _first_line(text)
    has_lists = format.layout == "lists"
    if not (text if has_lists else line).strip():
        problem = "its first line is blank" if line else "is empty"
        expected = (
            "lines of a user and items" if has_lists else "a first line with the column names"
        )
        raise InputError(f"{path}: {problem}; expected {expected}")
    if "\N{REPLACEMENT CHARACTER}" in line:
        raise InputError(f"{path}, line 1: {NOT_UTF8}")
    if len(line) == LONG_LINE and not has_lists:
        raise InputError(f"{path}, line 1: is longer than 2 MB; is it text with line breaks?")
    return text


def written_anew(path: Path, format: FileFormat, delimiter: str, *, has_header: bool = True) -> str:
    """The advice for a file of items that cannot be read: a command that writes another."""
    encoding = format.encoding
    if encoding == "utf-8" and _encoding_of_bytes(path) is None:
        encoding = "latin-1"
    options = [
        "delim=" + (r"'\t'" if delimiter == "\t" else quoted(delimiter)),
        "header=true" if has_header else "header=false, names=['item_id', 'title']",
        *([] if encoding == "utf-8" else [f"encoding={quoted(encoding)}"]),
        "all_varchar=true, ignore_errors=true",
    ]
    query = f"COPY (FROM read_csv({quoted(str(path))}, {', '.join(options)})) TO 'items.csv' "
    written = "without such lines" if has_header else "with names of columns"
    command = f"import duckdb; duckdb.sql('''{query}''')"
    return f'this writes items.csv {written}: python -c "{command}"'


def _compression(path: Path) -> str | None:
    return READ_COMPRESSIONS.get(path.suffix.lower())


def _open_bytes(path: Path) -> pa.NativeFile:
    """The bytes of a file, decompressed by the ending of its name."""
    return pa.input_stream(real_path(path), compression=_compression(path), buffer_size=1 << 20)


def _open_text(path: Path, format: FileFormat) -> io.TextIOWrapper:
    """The text of a file, without a byte order mark; undecodable bytes become U+FFFD."""
    codec = "utf-8-sig" if format.encoding == "utf-8" else format.encoding
    return io.TextIOWrapper(_open_bytes(path), encoding=codec, errors="replace", newline="")


def _encoding_of_items(path: Path, encoding: str) -> str:
    """The encoding that the bytes of a file show, otherwise ``encoding``."""
    try:
        with _open_bytes(path) as stream:
            mark = stream.read(2)
        if mark == _UTF16_MARKS[0]:
            return "utf-16"
        if encoding == "utf-16" and mark != _UTF16_MARKS[1]:
            return "utf-8"
        # Text of ASCII alone shows nothing: that of ISO-2022-JP is ASCII too.
        if encoding != "utf-8" and _encoding_of_bytes(path) == "utf-8":
            return "utf-8"
    except (OSError, EOFError, pa.ArrowException):
        pass  # the reading itself names the fault
    return encoding


def _encoding_of_bytes(path: Path) -> str | None:
    """``ascii`` or ``utf-8`` if the whole file is, otherwise None."""
    decoder, is_ascii = codecs.getincrementaldecoder("utf-8")(), True
    try:
        with _open_bytes(path) as stream:
            while block := stream.read(1 << 20):
                decoder.decode(block)
                is_ascii = is_ascii and block.isascii()
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return None
    return "ascii" if is_ascii else "utf-8"


def _numbered_rows(
    lines: io.TextIOBase, delimiter: str, has_quotes: bool, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The fields of every row, with the number of its last line.

    With ``strict``, raises csv.Error for a misplaced quote.
    """
    if not has_quotes:
        for number, line in enumerate(lines, start=1):
            yield number, line.rstrip("\r\n").split(delimiter)
        return
    # By default the csv module refuses fields above 128 KiB.
    previous = csv.field_size_limit(_LONG_FIELD)
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=strict)
        yield from ((reader.line_num, row) for row in reader)
    finally:
        csv.field_size_limit(previous)


def _line_end(block: bytes) -> bytes:
    """The line end in a block: \\n, which may follow \\r; \\r alone if there is no \\n."""
    return b"\n" if b"\n" in block else b"\r"


def longest_line(path: Path) -> int:
    """The number of bytes in the longest line of a file, with its end; at least 2 MB."""
    longest, length = _LONG_LINE_BYTES, 0
    with _open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            first, last = block.find(b"\n"), block.rfind(b"\n")
            longest = max(longest, length + (len(block) if first < 0 else first) + 1)
            length = len(block) - last - 1 + (length if first < 0 else 0)
    return longest


def _num_line_ends(path: Path, num_bytes: int) -> int:
    """The number of lines that end within the first bytes of a file."""
    found = 0
    with _open_bytes(path) as stream:
        while num_bytes and (block := stream.read(min(num_bytes, 1 << 20))):
            found += block.count(_line_end(block))
            num_bytes -= len(block)
    return found


def _likely_delimiter(text: str, columns: tuple[str, ...] | None) -> str:
    """The common delimiter that makes as many fields as there are columns, or else most fields."""
    line = _first_line(text)

    def rank(delimiter: str) -> tuple[bool, int]:
        has_quotes = _may_have_quotes(delimiter)
        num_fields = len(_first_row(line, delimiter, has_quotes, strict=False))
        return columns is not None and num_fields == len(columns), num_fields

    # Of equally good ones `max` takes the first.
    return max(_DELIMITERS, key=rank)


def _may_have_quotes(delimiter: str) -> bool:
    """True for a delimiter of one character; files with longer ones are written without quotes."""
    return len(delimiter) == 1


def _first_line(text: str) -> str:
    return io.StringIO(text, newline="").readline()


def _first_row(text: str, delimiter: str, has_quotes: bool, *, strict: bool) -> list[str]:
    lines = io.StringIO(text, newline="")
    return next(_numbered_rows(lines, delimiter, has_quotes, strict=strict))[1]


def _check_first_row(path: Path, fields: list[str], delimiter: str, format: FileFormat) -> None:
    """Raise InputError for a header with wrong names, and for a first row that does not fit the
    given columns."""
    if (names := format.columns) is None:
        repeated = [name for name, count in Counter(fields).items() if count > 1]
        if repeated:
            raise InputError(
                f"{path}, line 1: column {shown(min(repeated))} is there more than once"
            )
        refuse_nul(fields, f"{path}, line 1")
        return
    example = shown(delimiter.join(fields))
    if len(fields) != len(names):
        raise InputError(
            f"{path}, line 1: has {len(fields)} fields between {delimiter!r}, and --columns names "
            f"{len(names)}, {','.join(names)}; name every one, with - for what is not read: "
            f"{example}"
        )
    for pair in zip(fields, names, strict=True):
        # Compared without case and punctuation. Digits alone may be both a value and a name.
        field, name = (re.sub(r"[\W_]", "", text).lower() for text in pair)
        if field == name and not re.fullmatch(r"\d*", name):
            raise InputError(
                f"{path}, line 1: holds column names: {example}; --columns is for files without "
                "them, so leave it out"
            )
