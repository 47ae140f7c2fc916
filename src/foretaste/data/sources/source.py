"""One file or frame of raw rows, with its provenance; the files that are refused; and SQL names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from foretaste._util.documents import Json
from foretaste._util.files import file_sha256, real_path
from foretaste._util.formatting import short_repr, without_secrets
from foretaste.errors import InputError

Storage = Literal[
    "text", "integer", "real", "decimal", "wide", "moment", "instant", "uuid", "truth", "other"
]  # fmt: skip
"""The stored type of a column. ``moment`` are times without a time zone, ``instant`` times with
one; ``wide`` are decimals of over 38 digits, which DuckDB lacks; ``truth`` is true or false."""

TIMES: tuple[Storage, ...] = ("moment", "instant")

READ_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Compressions that foretaste reads directly, by suffix."""

PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One column in its stored form."""

    sql: str
    """The column in a query."""

    storage: Storage
    """The type before any cast; for a CSV file it is text."""

    type_name: str
    """The name of the stored type, for messages."""

    values: str = ""
    """SQL of the list of values, if a value of the column may be a list; otherwise empty."""

    element: Storage | None = None
    """The stored type of the elements of these lists; None without lists."""

    refused: str = ""
    """SQL condition of values that can be no id; empty if all values can be ids."""

    text: str | None = None
    """SQL of the text from which ``sql`` reads times."""

    time_format: str | None = None
    """The format of the times in that text."""

    @property
    def stored_text(self) -> str:
        """SQL of the value as text, but no times: DuckDB crashes on turning some into text."""
        if self.text is None and self.storage in TIMES:
            return "''"
        return f"CAST({self.text or self.sql} AS STRING)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """Rows of one file or frame. Parquet files use this class; text and frames have subclasses."""

    name: str
    """The file's path, or a word for the frame."""

    relation: str
    """The text after FROM in a query of all rows; `rows_kept` has only the kept rows."""

    columns: dict[str, Column]
    """All columns that can be read, by their names in the source."""

    repeated: tuple[str, ...] = ()
    """Names that several columns share; none of these columns can be read."""

    condition: str = ""
    """SQL condition of the kept rows; empty if all rows are kept."""

    size: int
    """Bytes of the file, or of the frame in memory."""

    path: Path | None = None

    modified_ns: int = 0
    """Time of the last change of the file."""

    users: str = ""
    """The text after FROM in a query of the lines of a file of lists, as ``user_id`` and ``line``,
    one line for each user. Empty for other sources."""

    part_number: int = 0
    """The number of the source's part in a given split; training is 0."""

    file: str = "''"
    """SQL of the path of a row's file; empty unless the source has several files."""

    other_names: tuple[str, ...] = ()
    """Other names under which the same file was given."""

    left_out: tuple[str, ...] = ()
    """Files of the folder that are no data; the folder's first file has them."""

    def __post_init__(self) -> None:
        # The manifest, notes and the name of the dataset contain this name.
        object.__setattr__(self, "name", without_secrets(self.name))

    @property
    def read_as(self) -> str:
        """The format of a text file in words; empty for other sources."""
        return ""

    @property
    def identity(self) -> Hashable:
        """A value that is equal for two names of one file."""
        return id(self) if self.path is None else file_identity(self.path)

    def reading(self, names: Iterable[str]) -> Self:
        """Return the source, ready for a read of these columns.

        Raises InputError for a column whose values have no common type.
        """
        return self

    @property
    def rows_kept(self) -> str:
        """The text after FROM in a query of the kept rows."""
        return (
            f"(SELECT * FROM {self.relation} WHERE {self.condition})"
            if self.condition
            else self.relation
        )

    def place(self, row: int, num_rows: int) -> str:
        """Return the place of a row, ``file, line 3``; the file alone if it has no lines.

        The first row is 1, and ``num_rows`` is the number of all rows. Raises InputError if the
        file cannot be read again.
        """
        return self.name

    def check_rows(self) -> None:
        """Raise InputError for the first unreadable row, if the engine names none."""

    def sha256(self) -> str:
        """Return the checksum of the content."""
        assert self.path is not None
        return file_sha256(self.path)

    def provenance(self) -> dict[str, Json]:
        """Return the source's name, size and checksum, and the format of text."""
        try:
            sha256 = self.sha256()
        except OSError as error:
            raise unreadable(self.name, error) from None
        described: dict[str, Json] = {"path": self.name, "num_bytes": self.size, "sha256": sha256}
        if self.read_as:
            described["read_as"] = self.read_as
        return described

    def check_unchanged(self) -> None:
        """Raise InputError if the file has changed since it was opened."""
        if self.path is not None and file_state(self.path) != (self.size, self.modified_ns):
            raise changed_error(self.name)


def names_of(sources: Sequence[Source]) -> str:
    """Return the names of the sources in an error about all sources."""
    first = ", ".join(source.name for source in sources[:3])
    return first if len(sources) <= 3 else f"{first} and {len(sources) - 3} more"


def file_state(path: Path) -> tuple[int, int]:
    """Return a file's size and time of last change; equal values mean an unchanged file."""
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(str(path), error) from None
    return status.st_size, status.st_mtime_ns


def file_identity(path: Path) -> tuple[int, int]:
    """Return a value that two names of one file share, such as a path and a link."""
    status = path.stat()
    return status.st_dev, status.st_ino


def changed_error(name: str) -> InputError:
    return InputError(
        f"{name}: changed while it was read; prepare it again when nobody writes to it"
    )


def unreadable(name: str, error: OSError) -> InputError:
    return InputError(f"{name}: cannot be read: {error.strerror or error}")


def refuse_nul(names: Iterable[str], where: str) -> None:
    """Raise InputError for a column name with a NUL character, which ends a name in SQL."""
    name = next((name for name in names if "\0" in name), None)
    if name is not None:
        raise InputError(
            f"{where}: column {short_repr(name)} has a NUL character in its name; rename it"
        )


def repeated_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that appear more than once."""
    return tuple(name for name, count in Counter(names).items() if count > 1)


def sql_literal(text: str) -> str:
    """Return text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a column name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def path_literal(path: Path) -> str:
    """Return a path as a SQL literal with escapes, so that DuckDB does not read it as a pattern."""
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in real_path(path))
    # DuckDB reads a backslash as a slash in patterns, but not in plain paths.
    if "[" in plain and "\\" in plain:
        raise InputError(
            f"{path}: is a path with a backslash and *, ? or [ in it, which cannot be read; rename "
            "it or its folder"
        )
    return sql_literal(plain)
