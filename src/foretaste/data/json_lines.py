"""Files of JSON lines, one object in each: read as lines of text, of which values are taken."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from foretaste._util.formatting import shown
from foretaste.data.config import FileFormat
from foretaste.data.csv_files import digits, quoted
from foretaste.data.dialects import LONG_LINE, Dialect, read_dialect, start_of_text
from foretaste.errors import InputError

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

_NUM_LINES_WITH_KEYS = 1000
# Floating-point numbers hold 15 digits of any number.
_LONG_NUMBER = "[0-9][0-9.]{15,}([eE][-+]?[0-9]+)?"


@dataclass(frozen=True, kw_only=True)
class JsonLines:
    """How one file of JSON lines is written."""

    lines: Dialect
    """How its lines are read as the one column of a text."""

    names: tuple[str, ...]
    """The keys of its objects."""

    has_header = False
    read_as = "JSON lines"

    @property
    def said(self) -> FileFormat:
        """What was said of the file."""
        return self.lines.said

    def relation(self, path: str, compression: str | None) -> str:
        """What stands after FROM in DuckDB; columns are c0, c1, ... in the order of ``names``, as
        text; r0, r1, ... are whether digits of it were rounded away. ``path`` is a SQL literal."""
        lines = self.lines.relation(path, compression)
        values = ", ".join(
            f"json_extract_string(c0, {(key := quoted(_pointer(name)))}) AS c{position}, "
            f"{_is_rounded(key)} AS r{position}"
            for position, name in enumerate(self.names)
        )
        return f"(SELECT {values} FROM {lines} WHERE trim(c0) <> '')"

    def find(self, path: Path, column: str, value: str | None) -> int | None:
        """The line on which a key first has this value; None stands for nothing at all.

        Raises InputError for the first line before it that is no object.
        """
        return next(
            (line for line, found in self.objects(path) if _as_text(found.get(column)) == value),
            None,
        )

    def objects(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every object with the number of its line; InputError for a line that is none."""
        return _objects(path, ((number, line) for number, (line,) in self.lines.rows(path)))


def read_json_lines(path: Path, format: FileFormat) -> JsonLines:
    """How a file of JSON lines is written; its keys are those of the first lines.

    Raises InputError where it is empty, not text, or one of these lines is no JSON object.
    """
    dialect, start = read_dialect(path, format), start_of_text(path, format)
    lines = start.split("\n")
    if len(start) == LONG_LINE:
        lines.pop()
    objects = islice(_objects(path, enumerate(lines, start=1)), _NUM_LINES_WITH_KEYS)
    # Keys with control characters or half a character cannot stand in SQL.
    names = dict.fromkeys(key for _, found in objects for key in found if key.isprintable())
    return JsonLines(lines=dialect, names=tuple(names))


def _objects(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines:
        if line.strip():
            yield number, _object(line, f"{path}, line {number}")


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise InputError(
        f"{where}: is not a JSON object; every line must be one, such as "
        '{"user_id": 1, "item_id": 2}. Of a file that is one list, jq -c ".[]" makes lines: '
        f"{shown(line[:300])}"
    )


def _pointer(key: str) -> str:
    """A key as a JSON pointer, RFC 6901."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _is_rounded(key: str) -> str:
    """SQL of whether a key's value is a floating-point number that lost digits of its line."""
    value = f"json_extract_string(c0, {key})"
    # The line is all that has them: the long numbers in it that are read as the same one.
    return (
        f"(regexp_matches(c0, '{_LONG_NUMBER}') AND json_type(c0, {key}) = 'DOUBLE' AND len(["
        f"number FOR number IN regexp_extract_all(c0, '{_LONG_NUMBER}') "
        f"IF TRY_CAST(number AS DOUBLE) = abs(TRY_CAST({value} AS DOUBLE)) "
        f"AND {digits('number')} <> {digits(value)}]) > 0)"
    )


def _as_text(value: Any) -> str | None:
    """A value as DuckDB makes it text; None where it is empty."""
    if isinstance(value, str) or value is None:
        return value or None
    return repr(value) if isinstance(value, float) else json.dumps(value, separators=(",", ":"))
