"""Delimited text files: their rows with line numbers, and what DuckDB says of them in our words."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from foretaste._util.formatting import shown
from foretaste.data.config import FileFormat
from foretaste.data.directory import real_path
from foretaste.errors import InputError

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_CODECS = {"utf-8": "utf-8-sig", "latin-1": "latin-1", "utf-16": "utf-16"}
_LONG_FIELD = 1 << 24
_LONG_LINE_BYTES = 2_000_000
_TOO_LONG = "is longer than 2 MB; a quote may be missing, or the file was not written to its end"
_BEYOND_ENCODING = {
    "latin-1": "holds bytes that latin-1 does not have, as windows-1252 text does; convert the "
    "file, for example with iconv -f WINDOWS-1252 -t UTF-8",
    "utf-16": "holds what cannot be read as UTF-16, as emoji cannot; convert the file, for example "
    "with iconv -f UTF-16 -t UTF-8",
}


def compression_of(path: Path) -> str | None:
    """How a file is compressed, as its name says; None where it is not."""
    return _COMPRESSIONS.get(path.suffix.lower())


def open_bytes(path: Path) -> pa.NativeFile:
    """The bytes of a file, decompressed as its name says."""
    compression = compression_of(path)
    return pa.input_stream(real_path(path), compression=compression, buffer_size=1 << 20)


def open_text(path: Path, encoding: str) -> io.TextIOWrapper:
    """The text of a file, without a byte order mark; what is not text comes as U+FFFD."""
    return io.TextIOWrapper(
        open_bytes(path), encoding=_CODECS[encoding], errors="replace", newline=""
    )


def numbered_rows(
    lines: io.TextIOBase, delimiter: str, has_quotes: bool, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The fields of every row, with the number of its last line.

    Raises csv.Error where quotes are not as they should be and ``strict`` is set.
    """
    if has_quotes:
        with _long_fields():
            reader = csv.reader(lines, delimiter=delimiter, strict=strict)
            yield from ((reader.line_num, row) for row in reader)
    else:
        for number, line in enumerate(lines, start=1):
            yield number, line.rstrip("\r\n").split(delimiter)


def refuse_long_lines(path: Path, name: str, encoding: str) -> None:
    """Raise InputError for a line of more than 2 MB.

    DuckDB leaves such a line out without a word where it fills the rest of a buffer, as the end of
    a file does that was allocated before it was written; elsewhere it does not always name it.
    """
    limit = _LONG_LINE_BYTES * (2 if encoding == "utf-16" else 1)
    start = offset = 0
    with open_bytes(path) as stream:
        while block := stream.read(limit):
            end = _line_end(block)
            first, last = block.find(end), block.rfind(end)
            if offset + (len(block) if first < 0 else first) - start > limit:
                raise InputError(f"{name}, line {_num_line_ends(path, start) + 1}: {_TOO_LONG}")
            if last >= 0:
                start = offset + last + 1
            offset += len(block)


def _line_end(block: bytes) -> bytes:
    """What ends the lines of a block: \\n, also after \\r, or \\r alone as on old Macs."""
    return b"\n" if b"\n" in block else b"\r"


def _num_line_ends(path: Path, num_bytes: int) -> int:
    """The number of lines that end within the first bytes of a file."""
    found = 0
    with open_bytes(path) as stream:
        while num_bytes and (block := stream.read(min(num_bytes, 1 << 20))):
            found += block.count(_line_end(block))
            num_bytes -= len(block)
    return found


def not_utf8(format: FileFormat) -> str:
    """What is said of a file that is in another encoding."""
    return (
        f"is not UTF-8 text; give its encoding with {format.option('encoding')} (latin-1 or "
        "utf-16), or convert it, for example with iconv -t UTF-8"
    )


def quotes_as_they_are(format: FileFormat) -> str:
    """What helps a file in which quotes mean nothing."""
    return f"{format.option('quote')} none takes quotes as they are"


def explain(message: str, files: Mapping[str, tuple[str, FileFormat]]) -> str | None:
    """What DuckDB's message about a malformed row says, as file, line and example.

    None where the message is about something else; without a file where it names none.
    ``files`` has the name of each file and what was said of it, by the path that DuckDB knows.
    """
    if "CSV Parser state machine" in message:
        return r"mixes line endings, \n and \r\n; make them one, for example with dos2unix"
    for encoding, problem in _BEYOND_ENCODING.items():
        if f"is not {encoding} encoded" in message:
            return problem
    line = re.search(r"CSV Error on Line: (\d+)", message)
    if line is None:
        return None
    file = re.search(r"^ *file = (.*)$", message, re.MULTILINE)
    original = re.search(r"^Original Line: ?(.*)$", message, re.MULTILINE)
    example = f": {shown(original.group(1))}" if original else ""
    name, format = files[_unescape(file.group(1))] if file else ("input", FileFormat())
    reason = _reason(message, format)
    return f"{name}, line {line.group(1)}: {reason}{example}"


def quoted(text: str) -> str:
    """Text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def digits(number: str) -> str:
    """SQL of the digits of a number written as text, but for zeros before and after them."""
    return f"trim(regexp_replace({number}, '[eE].*|[^0-9]', '', 'g'), '0')"


def _reason(message: str, format: FileFormat) -> str:
    fields = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if fields:
        return f"expected {fields.group(1)} fields, found {fields.group(2)}"
    if "unterminated quote" in message:
        return f"a quote is opened and never closed; {quotes_as_they_are(format)}"
    if "Invalid unicode" in message:
        return not_utf8(format)
    if "Maximum line size" in message:
        return _TOO_LONG
    return "cannot be parsed"


def _unescape(path: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", path)


@contextmanager
def _long_fields() -> Iterator[None]:
    """The csv module otherwise refuses fields above 128 KiB."""
    previous = csv.field_size_limit(_LONG_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(previous)
