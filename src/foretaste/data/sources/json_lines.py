"""Files of JSON lines: read as lines of text, from which SQL extracts the values."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from foretaste._util.formatting import shown
from foretaste.data.config import SKIPPED, FileFormat
from foretaste.data.sources.source import Column, quoted
from foretaste.data.sources.text import LONG_LINE, TextFile, start_of_text, whole_lines
from foretaste.errors import InputError

_NUM_LINES_WITH_KEYS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class JsonLinesFile(TextFile):
    """A file of JSON lines; its columns are the keys of the objects in its first lines."""

    @classmethod
    def open(cls, path: Path, format: FileFormat) -> TextFile:
        """The file; InputError if it is empty, no text, or one of its first lines is no object."""
        lines = super().open(path, whole_lines(format, "line"))
        start = start_of_text(path, lines.format)
        first = start.split("\n")
        if len(start) == LONG_LINE:
            first.pop()
        objects = islice(_objects(path, enumerate(first, start=1)), _NUM_LINES_WITH_KEYS)
        # Keys with control characters or lone surrogates cannot stand in SQL.
        keys = dict.fromkeys(
            key for _, found in objects for key in found if key.isprintable() and key != SKIPPED
        )
        selected, columns = [], {}
        for position, key in enumerate(keys):
            # A JSON pointer, RFC 6901.
            pointer = quoted("/" + key.replace("~", "~0").replace("/", "~1"))
            selected.append(f"json_extract_string(c0, {pointer}) AS c{position}")
            columns[key] = Column(sql=f"c{position}", storage="text", type_name="text")
        relation = f"(SELECT {', '.join(selected)} FROM {lines.relation} WHERE trim(c0) <> '')"
        return replace(lines, relation=relation, columns=columns)

    @property
    def read_as(self) -> str:
        return "JSON lines"

    def find(self, column: str, value: str | None) -> int | None:
        """The first line on which a key has this value; None stands for a missing value.

        Raises InputError for an earlier line that is no object.
        """
        for line, found in self._objects():
            text = found.get(column)
            # The text that DuckDB makes of a value.
            if isinstance(text, float):
                text = repr(text)
            elif text is not None and not isinstance(text, str):
                text = json.dumps(text, separators=(",", ":"))
            if (text or None) == value:
                return line
        return None

    def check_lines(self) -> None:
        with suppress(OSError):
            deque(self._objects(), maxlen=0)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return _objects(self.path, ((number, line) for number, (line,) in self.rows()))


def _objects(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object with the number of its line; InputError for a line that is no object."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InputError(
                f"{path}, line {number}: is not a JSON object; every line must be one, such as "
                '{"user_id": 1, "item_id": 2}. Of a file that is one list, jq -c ".[]" makes '
                f"lines: {shown(line[:300])}"
            )
        yield number, found
