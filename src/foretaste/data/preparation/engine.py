"""The engine of a preparation: what any of them does, and the spellings in which they differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from foretaste.data.sources.source import Source


@dataclass(frozen=True, kw_only=True)
class Spellings:
    """SQL of what engines spell in different ways; ``str.format`` fills in what is in braces."""

    wide_integer: str
    """A type of integers of 38 digits."""

    matches: str
    """True where all of ``text`` matches a ``pattern``."""

    without: str
    """``text`` without anything that matches a ``pattern``."""

    quotient: str
    """The whole part of ``value`` by ``divisor``, for numbers that it divides."""

    micros: str
    """Microseconds since 1970 of a ``value`` that is a date or time."""

    nanos: str
    """Nanoseconds since 1970 of a ``value`` with nanoseconds."""


class Engine(ABC):
    """Tables and queries of one preparation; a context, after which its tables are gone."""

    name: str
    """The engine and its version, as a manifest has it."""

    sql: Spellings

    reads_numbers_of_text: ClassVar[bool] = True
    """Columns of text may hold ratings and times; else such columns have types of their own."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def register(self, sources: Sequence[Source]) -> list[Source]:
        """The sources as this engine reads them; those that are written alike may be one.

        Raises InputError where a column is of a type that cannot be read, or a line of a file is
        longer than is read whole.
        """

    @abstractmethod
    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows a query returns, in no order that can be relied on.

        Raises InputError naming malformed input, SettingError where the memory limit is too tight,
        OSError where the disk is full.
        """

    @abstractmethod
    def make(self, table: str, query: str) -> None:
        """Keep the result of a query as a table."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Forget a table, and free its memory."""

    @abstractmethod
    def rename(self, table: str, name: str) -> None:
        """Have a table go by another name."""

    @abstractmethod
    def first(self, sql: str) -> tuple[Any, ...]:
        """The first row that a query without an order returns, in the order of the source."""

    @abstractmethod
    def write(self, query: str, path: Path) -> None:
        """Write the rows of a query in its order, by its first columns, as one Parquet file."""

    @abstractmethod
    def write_train(self, query: str, directory: Path, num_rows: int) -> list[str]:
        """Write the training pairs into a directory; the names of their files, in order."""

    def row(self, sql: str) -> tuple[Any, ...]:
        """The one row that a query returns."""
        (row,) = self.run(sql)
        return row

    def count(self, relation: str) -> int:
        """The number of rows of a table."""
        return int(self.row(f"SELECT count(*) FROM {relation}")[0])
