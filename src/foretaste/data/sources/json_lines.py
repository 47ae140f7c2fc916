"""Files of JSON lines, read as lines of text; SQL extracts the values."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from foretaste._util.documents import Json
from foretaste._util.formatting import short_repr
from foretaste.data.config import SKIPPED, FileFormat
from foretaste.data.sources.source import Column, sql_literal, unreadable
from foretaste.data.sources.text import LONG_LINE, TextFile, start_of_text, whole_lines
from foretaste.errors import InputError

_NUM_LINES_IN_ORDER = 1000
"""The keys of this many lines keep the order of the file; later keys follow alphabetically."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JsonLinesFile(TextFile):
    """A file of JSON lines; its columns are the keys of the objects."""

    @classmethod
    def open(cls, path: Path, format: FileFormat) -> TextFile:
        """Return the file; InputError if it is empty, no text, or an early line is no object."""
        lines = super().open(path, whole_lines(format, "line"))
        start = start_of_text(path, lines.format)
        first = start.split("\n")
        if len(start) == LONG_LINE:
            first.pop()
        objects = islice(_objects(path, enumerate(first, start=1)), _NUM_LINES_IN_ORDER)
        num_lines = Counter(tuple(found) for _, found in objects)
        found = dict.fromkeys(key for keys in num_lines for key in keys)
        if num_lines:
            ((usual, _),) = num_lines.most_common(1)
            found |= dict.fromkeys(sorted(_keys_beside(usual, lines)))
        # Keys with control characters or lone surrogates cannot stand in SQL.
        keys = [key for key in found if key.isprintable() and key != SKIPPED]
        # A JSON pointer, RFC 6901.
        pointers = [sql_literal("/" + key.replace("~", "~0").replace("/", "~1")) for key in keys]
        # One call for all keys parses a line only once.
        values = f"json_extract_string(c0, [{', '.join(pointers)}])"
        columns = {
            key: Column(
                sql=f"c[{place}]",
                storage="text",
                type_name="text",
                values=f"CASE WHEN json_type(c0, {pointer}) = 'ARRAY' "
                f"THEN json_extract_string(json_extract(c0, {pointer}), '$[*]') "
                f"ELSE [c[{place}]] END",
                element="text",
                refused=f"json_type(c0, {pointer}) IN ('OBJECT', 'ARRAY', 'BOOLEAN')",
            )
            for place, (key, pointer) in enumerate(zip(keys, pointers, strict=True), start=1)
        }
        relation = f"(SELECT c0, {values} AS c FROM {lines.relation} WHERE trim(c0) <> '')"
        return replace(lines, relation=relation, columns=columns)

    @property
    def read_as(self) -> str:
        return "JSON lines"

    def place(self, row: int, num_rows: int) -> str:
        """Return the file's name and the row's line; InputError if the line is no object."""
        self.check_unchanged()
        lines = ((number, line) for number, (line,) in self.rows() if line.strip())
        try:
            number, line = next(islice(lines, row - 1, None))
        except OSError as error:
            raise unreadable(self.name, error) from None
        next(_objects(self.path, [(number, line)]))
        return f"{self.name}, line {number}"

    def check_rows(self) -> None:
        super().check_rows()
        with suppress(OSError):
            deque(self._objects(), maxlen=0)

    def _objects(self) -> Iterator[tuple[int, dict[str, Json]]]:
        return _objects(self.path, ((number, line) for number, (line,) in self.rows()))


def _keys_beside(usual: Sequence[str], lines: TextFile) -> list[str]:
    """Return the keys of all lines except lines with the ``usual`` keys; empty if a line cannot be
    read, or if DuckDB lacks the encoding."""
    import duckdb

    # A comparison of two lists of keys takes a third of the time of unpacking one list.
    query = (
        f"SELECT DISTINCT unnest(json_keys(c0)) FROM {lines.relation} "
        "WHERE trim(c0) <> '' AND json_keys(c0) <> $usual"
    )
    try:
        with duckdb.connect() as connection:
            rows = connection.execute(query, {"usual": list(usual)})
            return [str(key) for (key,) in rows.fetchall()]
    except duckdb.Error:
        return []  # the engine reads these lines too, and explains its error


def _objects(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Json]]]:
    """Yield every object with the number of its line; InputError for a line that is no object."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InputError(
                f"{path}, line {number}: is not a JSON object; every line must be an object, such "
                'as {"user_id": 1, "item_id": 2}. If the file is one list, jq -c ".[]" makes '
                f"lines: {short_repr(line[:300])}"
            )
        yield number, found
