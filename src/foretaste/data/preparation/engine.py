"""The interface of an engine of preparation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from foretaste.data.preparation.casts import Kind, Spellings, cast
from foretaste.data.sources.source import Source

Row = tuple[Any, ...]
"""A row of a query's result."""


@dataclass(frozen=True, kw_only=True)
class FoundRows:
    """The rows of a source that meet a condition."""

    count: int

    place: str
    """The place of the first row: ``file, line 3``."""

    value: str | None
    """The requested value of the first row."""


class Engine(ABC):
    """Tables and queries of one preparation. As a context it removes its tables at the end."""

    name: str
    """The engine and its version, for the manifest."""

    sql: Spellings

    reads_numbers_of_text: ClassVar[bool] = True
    """True if columns of text may have ratings and times; otherwise both must be typed columns."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def register(self, sources: Sequence[Source]) -> list[Source]:
        """Return the sources as this engine reads them; files of one format may become one.

        Raises InputError for a column of a type that cannot be read, and for a line of a file that
        is too long.
        """

    @abstractmethod
    def run(self, sql: str) -> list[Row]:
        """Return the rows of a query; their order is not defined, even with ORDER BY.

        Raises InputError for malformed input, SettingError if the memory limit is too low, OSError
        if the disk is full.
        """

    @abstractmethod
    def find_rows(self, source: Source, where: str, value: str) -> FoundRows:
        """Return the kept rows that meet ``where``, with the SQL ``value`` of the first row."""

    def find_value(self, sources: Sequence[Source], name: str, kind: Kind, value: str) -> FoundRows:
        """Return rows of the first source with ``value`` in column ``name``, read as ``kind``."""
        for source in sources:
            column = source.columns[name]
            is_value = f"{cast(self.sql, column, kind)} = {value}"
            if (found := self.find_rows(source, is_value, column.stored_text)).count:
                return found
        raise AssertionError(f"no source has {value}")

    @abstractmethod
    def make(self, table: str, query: str) -> None:
        """Keep the result of a query as a table."""

    @abstractmethod
    def define(self, view: str, query: str) -> None:
        """Give a query a name; each read of the name runs the query."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Drop a table, and free its memory."""

    @abstractmethod
    def rename(self, table: str, name: str) -> None:
        """Rename a table."""

    @abstractmethod
    def write(self, query: str, path: Path) -> None:
        """Write the rows of a query, ordered by its first columns, as one Parquet file."""

    @abstractmethod
    def write_train(self, query: str, directory: Path, num_rows: int) -> list[str]:
        """Write the training pairs into a directory; returns the names of their files, in order."""

    def row(self, sql: str) -> Row:
        """Return the one row that a query returns."""
        (row,) = self.run(sql)
        return row

    def count(self, relation: str) -> int:
        """Return the number of rows of a table."""
        return int(self.row(f"SELECT count(*) FROM {relation}")[0])
