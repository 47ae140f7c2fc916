"""Files of delimited text: the format, set or guessed, and the rows with line numbers."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from foretaste._util.files import real_path
from foretaste._util.formatting import short_repr
from foretaste.data.config import SKIPPED, FileFormat, Quote
from foretaste.data.sources.shape import hint_lists
from foretaste.data.sources.source import (
    READ_COMPRESSIONS,
    Column,
    Source,
    file_state,
    path_literal,
    refuse_nul,
    repeated_names,
    sql_literal,
    unreadable,
)
from foretaste.errors import InputError

LONG_LINE = 1 << 21
"""Number of characters that decide the format of a file."""

_TOO_LONG = "is longer than 2 MB; a quote may be missing, or the file was not written to its end"

_NATIVE = ("utf-8", "latin-1", "utf-16")
_DELIMITERS = (",", "::", "\t", ";", "|")
NO_DELIMITER = (
    "has none of the delimiters , tab ; | and ::, and --delimiter (delimiter=... in Python) names "
    "any other, such as ' '"
)
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_QUOTES: dict[Quote, tuple[str, str]] = {
    "double": ('"', '"'), "backslash": ('"', "\\"), "none": ("", "")
}  # fmt: skip
# zlib's error for bytes behind a part of a gzip file that begin no other part, such as zeros.
_NO_MEMBER = re.compile("inflate failed: (?:unknown compression method|incorrect header check)")
_LONG_FIELD = 1 << 24
_LONG_LINE_BYTES = 2_000_000

# Spreadsheets write the delimiter on a line before the header: sep=;
_SEPARATOR = re.compile(r"(\"?)sep=(.)\1(?:\r\n?|\n)", re.IGNORECASE)
# Latin-1 has only control characters in this range, windows-1252 has letters and quotes.
_NOT_LATIN_1 = re.compile("[\x80-\x9f]")


@dataclass(frozen=True, kw_only=True, eq=False)
class TextFile(Source):
    """A file of delimited text."""

    path: Path

    format: FileFormat
    """The settings of the file."""

    delimiter: str

    quote: Quote
    """``none`` for a delimiter of several characters; otherwise the setting."""

    names: tuple[str, ...]
    """The name of every field, in order."""

    longest_row: ClassVar[float] = _LONG_LINE_BYTES
    """The largest number of characters in a row."""

    num_skipped: int
    """The number of lines before the rows: the header, and a line such as ``sep=;``."""

    is_copied: bool
    """True if DuckDB reads a copy in UTF-8."""

    @classmethod
    def open(cls, path: Path, format: FileFormat) -> TextFile:
        """Return the file in the given ``format``, completed from the first row.

        Raises InputError if the file is empty or no text, or if its first row contradicts
        ``format``.
        """
        size, modified_ns = file_state(path)
        if format.is_items:
            format = replace(format, encoding=_encoding_of_items(path, format.encoding))
        text = start_of_text(path, format)
        separator = _SEPARATOR.match(text)
        if separator is not None:
            text = text[separator.end() :]
        delimiter = format.delimiter or (
            separator[2] if separator is not None else _likely_delimiter(text, format)
        )
        quote: Quote = format.quote if len(delimiter) == 1 else "none"
        try:
            fields = _first_row(text, delimiter, quote)
        except csv.Error as error:
            raise InputError(
                f"{path}, line 1: cannot be parsed ({error}){quote_advice(text, format)}: "
                f"{short_repr(text[:300])}{_rewrite_hint(path, format, delimiter)}"
            ) from None
        _check_first_row(path, text, fields, delimiter, format)
        names = format.columns or tuple(fields)
        repeated = repeated_names(names)
        columns = {
            name: Column(sql=f"c{position}", storage="text", type_name="text")
            for position, name in enumerate(names)
            if name not in ("", *repeated) and (name != SKIPPED or format.columns is None)
        }
        # Columns are declared by position, because DuckDB ignores case in names. All are text,
        # because DuckDB's own detection reads 007 as 7. With declared columns and strict mode,
        # DuckDB refuses bad text, short or long rows and open quotes.
        declared = ", ".join(f"c{position}: 'VARCHAR'" for position in range(len(names)))
        # `header` is never guessed: if it is true, DuckDB silently drops the first row of a file
        # without a line of names.
        # DuckDB takes the quotes of a line "sep=;" behind a byte order mark for quotes of a row.
        has_quotes = separator is not None and bool(separator[1])
        is_copied = has_quotes or format.encoding not in _NATIVE
        encoding = "utf-8" if is_copied else format.encoding
        # store_rejects stays off: with it DuckDB 2.0 leaves out a line above 32 MB without a
        # reject, and keeps 900 bytes for each bad row beyond any limit (5 million rows took 3.8
        # GB).
        relation = (
            f"read_csv({path_literal(path)}, auto_detect=false, strict_mode=true, "
            f"header={format.columns is None}, skip={int(separator is not None)}, "
            f"delim={sql_literal(delimiter)}, quote={sql_literal(_QUOTES[quote][0])}, "
            f"escape={sql_literal(_QUOTES[quote][1])}, encoding='{encoding}', "
            f"compression='{_compression(path) or 'none'}', "
            f"hive_partitioning=false, columns={{{declared}}})"
        )
        return cls(
            name=str(path), relation=relation, columns=columns, size=size, modified_ns=modified_ns,
            path=path, format=format, delimiter=delimiter, quote=quote, names=names,
            repeated=repeated, num_skipped=(separator is not None) + (format.columns is None),
            is_copied=is_copied,
        )  # fmt: skip

    @property
    def read_as(self) -> str:
        # These words are part of a dataset's key: equal bytes in two formats make two datasets.
        columns = f"columns {','.join(self.names)}" if self.format.columns else "a header"
        return f"text, delimiter {self.delimiter!r}, {columns}"

    def place(self, row: int, num_rows: int) -> str:
        self.check_unchanged()
        try:
            return f"{self.name}, line {self.line_of(row, num_rows)}"
        except OSError as error:
            raise unreadable(self.name, error) from None

    def line_of(self, row: int, num_rows: int) -> int:
        """Return the number of the line that ends a row. The first row is 1."""
        # A count of line ends takes a tenth of the time of a parse of rows (20 million in 5 s).
        with _open_text(self.path, self.format, newline=None) as file:
            num_lines, end = 0, "\n"
            while block := file.read(1 << 20):
                num_lines += block.count("\n")
                end = block[-1]
        if num_lines + (end != "\n") == num_rows + self.num_skipped:
            return row + self.num_skipped
        return next(islice(self.rows(), row - 1, None))[0]

    def rows(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield every row below the header with the number of its last line, without blank lines.

        With ``strict``, raises csv.Error for a misplaced quote.
        """
        with _open_text(self.path, self.format) as file:
            numbered = _number_rows(file, self.delimiter, self.quote, strict=strict)
            yield from (
                (line, row)
                for line, row in islice(numbered, self.num_skipped, None)
                if row not in ([], [""])
            )

    def check_rows(self) -> None:
        """Raise InputError with the line of the first row that the engine cannot read, if any."""
        line = self.num_skipped
        try:
            for line, row in self.rows(strict=True):
                if problem := self._problem_of(row):
                    example = short_repr(self.delimiter.join(row)[:300])
                    hint = _rewrite_hint(self.path, self.format, self.delimiter)
                    error = InputError(f"{self.name}, line {line}: {problem}: {example}{hint}")
                    if len(row) != len(self.names) and self.format.columns is not None:
                        error = hint_lists(error, self.path, start_of_text(self.path, self.format))
                    raise error
        except csv.Error as error:
            number, text = self._first_line_below(line)
            # The csv module reads fields of 16 MB.
            is_open = "end of data" in str(error) or "field limit" in str(error)
            reason = "a quote is opened and never closed" if is_open else str(error)
            problem = f"{reason}{quote_advice(text, self.format)}: {short_repr(text[:300])}"
            if len(text) > _LONG_LINE_BYTES:
                problem = _TOO_LONG
            hint = _rewrite_hint(self.path, self.format, self.delimiter)
            raise InputError(f"{self.name}, line {number}: {problem}{hint}") from None
        except OSError as error:
            raise unreadable(self.name, error) from None

    def _first_line_below(self, line: int) -> tuple[int, str]:
        """Return the first line below ``line`` that is not blank, with its number."""
        with _open_text(self.path, self.format) as file:
            lines = islice(enumerate(file, start=1), line, None)
            return next((number, text.strip()) for number, text in lines if text.strip())

    def _problem_of(self, row: list[str]) -> str | None:
        """Return the fault of a row, for a message; None for a good row."""
        text = self.delimiter.join(row)
        if len(text) > self.longest_row:
            return _TOO_LONG
        if len(row) != len(self.names):
            return f"expected {len(self.names)} fields, found {len(row)}"
        if "\N{REPLACEMENT CHARACTER}" in text:
            return encoding_error(self.format)
        if self.format.encoding == "latin-1" and _NOT_LATIN_1.search(text):
            return (
                "holds bytes that latin-1 does not have, as windows-1252 text does: --encoding "
                "cp1252 (encoding='cp1252' in Python)"
            )
        return None

    def readable(self, copy: Path) -> TextFile:
        """Return the file itself, or its copy in UTF-8 at ``copy`` if DuckDB cannot read the file.

        Raises InputError with the line that is not in the encoding.
        """
        if not self.is_copied:
            return self
        copy.parent.mkdir(parents=True, exist_ok=True)
        with (
            _open_text(self.path, self.format) as text,
            pa.output_stream(real_path(copy), compression=_compression(self.path)) as written,
        ):
            while block := text.read(1 << 20):
                if "\N{REPLACEMENT CHARACTER}" in block:
                    self.check_rows()
                written.write(block.encode())
        relation, users = (
            query.replace(path_literal(self.path), path_literal(copy))
            for query in (self.relation, self.users)
        )
        return replace(self, relation=relation, users=users)

    def check_last_line(self) -> None:
        """Raise InputError if the last line is longer than 2 MB."""
        # DuckDB silently leaves out a last line above 32 MB, such as the rest of a file that was
        # allocated but not fully written. DuckDB refuses other lines that are too long.
        limit = _LONG_LINE_BYTES * (2 if self.format.encoding == "utf-16" else 1)
        tail = b""
        try:
            is_packed = _compression(self.path) is not None
            with _open_bytes(self.path) if is_packed else self.path.open("rb") as stream:
                if not is_packed:
                    stream.seek(max(0, self.size - limit - 1))
                while block := stream.read(limit):
                    tail = (tail + block)[-limit - 1 :]
        except (OSError, EOFError, pa.ArrowException) as error:
            raise _unreadable_error(self.path, error) from None
        if len(tail) > limit and not any(end in tail[:-2] for end in (b"\n", b"\r")):
            self.check_rows()


def whole_lines(format: FileFormat, name: str) -> FileFormat:
    """Return the format of a text whose only column, ``name``, has whole lines."""
    return replace(format, delimiter="\x01", columns=(name,), quote="none")


def start_of_text(path: Path, format: FileFormat) -> str:
    """Return a file's first 2 MB; InputError if line 1 is empty, too long or no text."""
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
        raise _unreadable_error(path, error) from None
    line = _first_line(text)
    has_lists = format.layout == "lists"
    if not (text if has_lists else line).strip():
        problem = "its first line is blank" if line else "is empty"
        expected = (
            "lines of a user and items" if has_lists else "a first line with the column names"
        )
        raise InputError(f"{path}: {problem}; expected {expected}")
    if "\N{REPLACEMENT CHARACTER}" in line:
        raise InputError(f"{path}, line 1: {encoding_error(format)}")
    if len(line) == LONG_LINE and not has_lists:
        raise InputError(f"{path}, line 1: is longer than 2 MB; is it text with line breaks?")
    return text


def rewrite_command(
    path: Path, format: FileFormat, delimiter: str, *, has_header: bool = True
) -> str:
    """Return the advice for an unreadable file of items: a command that writes another file."""
    encoding = format.encoding
    if encoding == "utf-8" and _encoding_of_bytes(path) is None:
        encoding = "latin-1"
    options = [
        "delim=" + (r"'\t'" if delimiter == "\t" else sql_literal(delimiter)),
        "header=true" if has_header else "header=false, names=['item_id', 'title']",
        *([] if encoding == "utf-8" else [f"encoding={sql_literal(encoding)}"]),
        "all_varchar=true, ignore_errors=true",
    ]
    query = f"COPY (FROM read_csv({sql_literal(str(path))}, {', '.join(options)})) TO 'items.csv' "
    written = "without such lines" if has_header else "with names of columns"
    command = f"import duckdb; duckdb.sql('''{query}''')"
    return f'this writes items.csv {written}: python -c "{command}"'


def _rewrite_hint(path: Path, format: FileFormat, delimiter: str) -> str:
    """Return the advice for a file of items with an unreadable row, after a semicolon."""
    return f"; {rewrite_command(path, format, delimiter)}" if format.is_items else ""


def encoding_error(format: FileFormat) -> str:
    """Return the message about a file that is not in the encoding of ``format``."""
    return (
        f"is not {format.encoding.upper()} text; give its encoding with --encoding (such as "
        "cp1252, latin-1 or utf-16), or convert it, for example with iconv -t UTF-8"
    )


def quote_advice(text: str, format: FileFormat) -> str:
    """Return the advice for a text whose quotes do not fit ``format``, after a semicolon."""
    if format.is_items:
        return ""
    if format.quote == "double" and '\\"' in text:
        return r"; --quote backslash reads \" as a quote within a field"
    return "; --quote none takes quotes as they are"


def _unreadable_error(path: Path, error: Exception) -> InputError:
    hint = ""
    if _NO_MEMBER.search(str(error)):
        hint = "; the gzip data end before the file does, so unpack it with gunzip"
    return InputError(f"{path}: cannot be read: {error}{hint}")


def _compression(path: Path) -> str | None:
    return READ_COMPRESSIONS.get(path.suffix.lower())


def _open_bytes(path: Path) -> pa.NativeFile:
    """Return the bytes of a file, decompressed by the ending of its name."""
    return pa.input_stream(real_path(path), compression=_compression(path), buffer_size=1 << 20)


def _open_text(path: Path, format: FileFormat, newline: str | None = "") -> io.TextIOWrapper:
    """Return the text of a file, without a byte order mark; undecodable bytes become U+FFFD."""
    codec = "utf-8-sig" if format.encoding == "utf-8" else format.encoding
    return io.TextIOWrapper(_open_bytes(path), encoding=codec, errors="replace", newline=newline)


def _encoding_of_items(path: Path, encoding: str) -> str:
    """Return the encoding that the bytes of a file show, otherwise ``encoding``."""
    try:
        with _open_bytes(path) as stream:
            mark = stream.read(2)
        if mark == _UTF16_MARKS[0]:
            return "utf-16"
        if encoding == "utf-16" and mark != _UTF16_MARKS[1]:
            return "utf-8"
        # ASCII alone proves nothing: text in ISO-2022-JP is ASCII too.
        if encoding != "utf-8" and _encoding_of_bytes(path) == "utf-8":
            return "utf-8"
    except (OSError, EOFError, pa.ArrowException):
        pass  # the read itself names the fault
    return encoding


def _encoding_of_bytes(path: Path) -> str | None:
    """Return ``ascii`` or ``utf-8`` if the whole file is in this encoding, otherwise None."""
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


def _number_rows(
    lines: io.TextIOBase, delimiter: str, quote: Quote, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of every row with the number of its last line.

    With ``strict``, raises csv.Error for a misplaced quote.
    """
    if quote == "none":
        for number, line in enumerate(lines, start=1):
            yield number, line.rstrip("\r\n").split(delimiter)
        return
    # The csv module refuses fields above 128 KiB by default.
    previous = csv.field_size_limit(_LONG_FIELD)
    escape: dict[str, Any] = {"doublequote": False, "escapechar": "\\"}
    dialect = escape if quote == "backslash" else {}
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=strict, **dialect)
        yield from ((reader.line_num, row) for row in reader)
    finally:
        csv.field_size_limit(previous)


def longest_line(path: Path) -> int:
    """Return the bytes of a file's longest line, with its line end; at least 2 MB."""
    longest, length = _LONG_LINE_BYTES, 0
    with _open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            first, last = block.find(b"\n"), block.rfind(b"\n")
            longest = max(longest, length + (len(block) if first < 0 else first) + 1)
            length = len(block) - last - 1 + (length if first < 0 else 0)
    return longest


def _likely_delimiter(text: str, format: FileFormat) -> str:
    """Return the common delimiter that makes one field per column, otherwise the delimiter with
    most fields; a blank for items without a common delimiter, such as LightGCN's
    ``item_list.txt``."""
    line, columns = _first_line(text), format.columns
    if format.is_items and " " in line and not any(one in line for one in _DELIMITERS):
        return " "

    def rank(delimiter: str) -> tuple[bool, int]:
        quote: Quote = "double" if len(delimiter) == 1 else "none"
        num_fields = len(_first_row(line, delimiter, quote, strict=False))
        return columns is not None and num_fields == len(columns), num_fields

    # `max` takes the first of equally good delimiters.
    return max(_DELIMITERS, key=rank)


def _first_line(text: str) -> str:
    return io.StringIO(text, newline="").readline()


def _first_row(text: str, delimiter: str, quote: Quote, *, strict: bool = True) -> list[str]:
    lines = io.StringIO(text, newline="")
    return next(_number_rows(lines, delimiter, quote, strict=strict))[1]


def _check_first_row(
    path: Path, text: str, fields: list[str], delimiter: str, format: FileFormat
) -> None:
    """Raise InputError for wrong names in a header, or a first row unlike the given columns."""
    if (names := format.columns) is None:
        refuse_nul(fields, f"{path}, line 1")
        return
    example = short_repr(delimiter.join(fields))
    if len(fields) != len(names):
        problem = NO_DELIMITER
        if len(fields) > 1 or format.delimiter is not None:
            problem = (
                f"has {len(fields)} fields between {delimiter!r}, and --columns names "
                f"{len(names)}, {','.join(names)}; name every one, with - for what is not read"
            )
        raise hint_lists(InputError(f"{path}, line 1: {problem}: {example}"), path, text)
    for pair in zip(fields, names, strict=True):
        # Names are compared without case and punctuation. Digits alone may be a value or a name.
        field, name = (re.sub(r"[\W_]", "", text).lower() for text in pair)
        if field == name and not re.fullmatch(r"\d*", name):
            raise InputError(
                f"{path}, line 1: holds column names: {example}; --columns is for files without "
                "them, so leave it out"
            )
