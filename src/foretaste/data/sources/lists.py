"""Files with one line for each user: the user id and then the items, oldest first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from foretaste.data.config import FileFormat
from foretaste.data.sources.shape import SEPARATOR, fields_of
from foretaste.data.sources.source import Column
from foretaste.data.sources.text import TextFile, longest_line, whole_lines

COLUMNS = {
    "user_id": Column(sql="user_id", storage="text", type_name="text"),
    "item_id": Column(sql="item_id", storage="text", type_name="text"),
    # `is_rank` is true for this name: the column orders the items of one user.
    "time_rank": Column(sql="time_rank", storage="integer", type_name="bigint"),
}
"""The columns of every file of lists. ``time_rank`` is the place in the line; 0 is the oldest."""

READ_AS = "text, one line for each user"

# DuckDB's own size. A larger buffer takes memory, and a smaller buffer refuses long lines.
_BUFFER_BYTES = 32_000_000

USERS = """(
SELECT regexp_extract(line, '^[^ ,\t]*', 0) AS user_id, line{columns}
FROM (
    SELECT regexp_replace(regexp_replace({line}, '^ +', ''), '[ ,\t]+$', '') AS line{columns}
    FROM {lines})
WHERE line <> '')"""
"""SQL of the lines with their users, without blanks around a line and empty fields at its end."""

# DuckDB's spelling. A split by a pattern takes six times as long as by one character, so the
# pattern splits only lines that mix blanks with other separators.
_ITEMS = f"""(
SELECT user_id, unnest(items) AS item_id, unnest(range(len(items))) AS time_rank
FROM (
    SELECT user_id, fields[2:] AS items
    FROM (
        SELECT user_id, CASE
            WHEN NOT (contains(line, ',') OR contains(line, chr(9)))
            THEN list_filter(string_split(line, ' '), lambda field: field <> '')
            WHEN NOT contains(line, ' ') THEN string_split(replace(line, chr(9), ','), ',')
            ELSE string_split_regex(line, '{SEPARATOR}') END AS fields
        FROM {{users}})))"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ListsFile(TextFile):
    """A file of lists."""

    longest_row: ClassVar[float] = math.inf

    @classmethod
    def open(cls, path: Path, format: FileFormat) -> TextFile:
        """Return the file; InputError if it is empty or no text."""
        opened = super().open(path, whole_lines(format, "line"))
        # A byte of another encoding becomes up to three bytes of UTF-8.
        longest = longest_line(path) * (1 if format.encoding == "utf-8" else 3)
        lines = opened.relation.removesuffix(")")
        lines += f", max_line_size={longest}, buffer_size={max(longest, _BUFFER_BYTES)})"
        users = USERS.format(line="c0", lines=lines, columns="")
        relation = _ITEMS.format(users=users)
        return replace(opened, relation=relation, columns=COLUMNS, users=users)

    @property
    def read_as(self) -> str:
        return READ_AS

    def check_last_line(self) -> None:
        """Do nothing: a line may have any length."""

    def place(self, row: int, num_rows: int) -> str:
        """Return the name of the file and the line of an item. Items are counted from 1."""
        for line, (_, *items) in self.lists():
            row -= len(items)
            if row <= 0:
                return f"{self.name}, line {line}"
        raise AssertionError("the file has fewer items than were read")

    def lists(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the fields of every line, with its number."""
        for number, (line,) in self.rows():
            if fields := fields_of(line):
                yield number, fields
