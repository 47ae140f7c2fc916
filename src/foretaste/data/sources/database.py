"""Tables of SQLite and PostgreSQL, read through ADBC."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir
from types import ModuleType
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa

from foretaste._util.documents import Json
from foretaste._util.files import NO_ROOM, open_regular, real_path, unwritable_message
from foretaste._util.formatting import did_you_mean, short_repr, without_secrets
from foretaste.data.sources.arrow import Frame, number_columns
from foretaste.data.sources.source import (
    changed_error,
    file_identity,
    file_state,
    identifier,
    repeated_names,
    unreadable,
)
from foretaste.errors import InputError, MissingExtraError

_URL = re.compile(r"(?:sqlite:///|postgres(?:ql)?://).*", re.DOTALL)
_SQLITE = "sqlite:///"
_EVENTS = "events"
_WAL_MODE = b"\2\2"
"""Bytes 18 and 19 of a SQLite file in WAL mode."""
_NOT_WRITABLE = re.compile("readonly database|unable to open database file")

_KINDS = (
    "sqlite|postgres|mysql|mariadb|mssql|sqlserver|oracle|snowflake|redshift|mongodb|redis|duckdb"
)
# The pattern also matches misspelled URLs, URLs of other databases and drivers, and libpq's form.
_LIKE_URL = re.compile(
    rf"\s*(?:(?:jdbc:|(?:{_KINDS})\w*(?:\+\w+)*:?/).*|\w+\s*=\s*\S+\s+\w+\s*=.*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class _Dialect:
    """A kind of database: its driver and its SQL."""

    driver: str
    tables: str
    """Query of the names of its tables."""

    text: str
    """SQL of the text that preserves the value of column ``name``."""

    session: tuple[str, ...] = ()
    """Statements at the beginning of a session."""


_TEXT = "CAST({name} AS TEXT)"
# SQLite's CAST AS TEXT keeps 15 digits of a floating-point number, and 17 may be needed. So this
# SQL takes the fewest digits that give the number back.
_DIGITS = "".join(
    f"WHEN CAST(printf('%!.{digits}g', {{name}}) AS REAL) = {{name}} "
    f"THEN printf('%!.{digits}g', {{name}}) "
    for digits in (15, 16, 17)
)
_DIALECTS = {
    "sqlite": _Dialect(
        driver="adbc_driver_sqlite",
        tables="SELECT name FROM sqlite_master "
        "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1",
        # coalesce is needed because the driver takes a column that begins with many NULLs for
        # integers.
        text=f"CASE WHEN typeof({{name}}) <> 'real' THEN coalesce({_TEXT}, '') "
        f"{_DIGITS}ELSE {_TEXT} END",
    ),
    "postgresql": _Dialect(
        driver="adbc_driver_postgresql",
        tables="SELECT DISTINCT table_name FROM information_schema.tables "
        "WHERE table_schema = ANY (current_schemas(false)) ORDER BY 1",
        text=_TEXT,
        # The server's settings must not change the text of values or the order of rows, because
        # both are in the checksum.
        session=(
            "SET datestyle = 'ISO'",
            "SET timezone = 'UTC'",
            "SET extra_float_digits = 1",
            "SET synchronize_seqscans = off",
        ),
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Database(Frame):
    """The rows of a database query, with every value as text, as in a CSV file."""

    query: str
    """The query of the rows; by default the query of a whole table."""

    @classmethod
    def read(cls, url: str, query: str | None) -> Database:
        """Return the rows of ``query``; if it is None, of table ``events`` or of the only table.

        Raises InputError if the database cannot be reached or the query cannot be run,
        MissingExtraError if ADBC is not installed.
        """
        dialect = _DIALECTS["sqlite" if url.startswith(_SQLITE) else "postgresql"]
        with _connect(url, dialect) as cursor:
            if query is None:
                cursor.execute(dialect.tables)
                tables = [str(table) for (table,) in cursor.fetchall()]
                query = f"SELECT * FROM {identifier(default_table(tables, url))}"
            # The parenthesis needs its own line, because a -- comment may end the query.
            rows = f"({query.strip().rstrip(';')}\n) AS found"
            cursor.execute(f"SELECT * FROM {rows} LIMIT 0")
            names = cursor.fetch_record_batch().schema.names
            _refuse_repeats(names, url)
            columns = number_columns(names, [pa.string()] * len(names))
            texts = [
                f"{dialect.text.format(name=identifier(column))} AS {columns[column].sql}"
                for column in names
            ]
            cursor.execute(f"SELECT {', '.join(texts)} FROM {rows}")
            table = _spool(cursor.fetch_record_batch())
        return cls(
            name=url, relation=f"frame_{id(table)}", columns=columns, size=table.nbytes,
            table=table, convert=lambda column: table.select([columns[column].sql]), given=table,
            query=query,
        )  # fmt: skip

    def reading(self, names: Iterable[str]) -> Self:
        """Return the result of `Frame.reading`; InputError for a column of undecodable bytes."""
        for name in (names := list(names)):
            try:
                self.table[self.columns[name].sql].validate(full=True)
            except pa.ArrowInvalid:
                raise InputError(
                    f"{self.name}: column {short_repr(name)} holds bytes that are not UTF-8 text; "
                    f"write them as text with --query (query=... in Python): hex({name})"
                ) from None
        return super().reading(names)

    @property
    def identity(self) -> Hashable:
        if self.name.startswith(_SQLITE):
            return file_identity(Path(self.name.removeprefix(_SQLITE)))
        return self.name

    def provenance(self) -> dict[str, Json]:
        return super().provenance() | {"query": self.query, "num_rows": self.table.num_rows}


def is_database(source: str) -> bool:
    """Return True for the URL of any database, even if foretaste cannot read it."""
    return _LIKE_URL.fullmatch(source) is not None and not os.path.exists(source)  # noqa: PTH110


def default_table(tables: Sequence[str], name: str) -> str:
    """Return the table that is read without a query; InputError if several tables are possible."""
    if _EVENTS in tables:
        return _EVENTS
    if len(tables) == 1:
        return tables[0]
    found = f"has tables {', '.join(map(short_repr, tables[:20]))}" if tables else "has no tables"
    raise InputError(
        f"{name}: {found}; name the rows with --query 'SELECT ... FROM ...' (query=... in Python)"
    )


def _refuse_repeats(names: Sequence[str], where: str) -> None:
    """Raise InputError for names equal but for case: SQLite would read the first for both."""
    if repeated := repeated_names(map(str.lower, names)):
        raise InputError(
            f"{where}: column {short_repr(min(repeated))} appears more than once, case aside; name "
            "it apart in --query (query=... in Python)"
        )


def _spool(batches: pa.RecordBatchReader) -> pa.Table:
    """Return the rows in an unnamed, mapped temporary file: they need not fit into memory.

    Empty text is NULL, as in a CSV file.
    """
    import pyarrow.compute as pc

    schema = pa.schema([(name, pa.string()) for name in batches.schema.names])
    try:
        with NamedTemporaryFile(suffix=".arrow") as file:
            with pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    texts = [
                        pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
                        for column in batch.columns
                    ]
                    writer.write_batch(pa.record_batch(texts, schema=schema))
            file.flush()
            return pa.ipc.open_file(pa.memory_map(file.name)).read_all()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        problem = unwritable_message(error, "name another folder in TMPDIR")
        raise InputError(f"{gettempdir()}, in which rows of databases wait: {problem}") from None


@contextmanager
def _connect(url: str, dialect: _Dialect) -> Iterator[Any]:
    """Yield a cursor. The driver's errors become InputErrors without secrets."""
    if not _URL.fullmatch(url):
        raise InputError(
            f"{url}: is no URL of a database that is read; write SQLite as sqlite:///events.db and "
            "PostgreSQL as postgresql://user@host/database, and export the rows of other databases "
            "as CSV or Parquet"
        )
    if find_spec(dialect.driver) is None:
        raise MissingExtraError(
            f"{url}: is read through ADBC, which is missing: "
            f"pip install {dialect.driver.replace('_', '-')}"
        )
    driver = import_module(f"{dialect.driver}.dbapi")
    try:
        with (
            _place(url, driver) as place,
            driver.connect(place) as connection,
            connection.cursor() as cursor,
        ):
            for statement in dialect.session:
                cursor.execute(statement)
            yield cursor
    except OSError as error:
        raise unreadable(url, error) from None
    except (driver.Error, pa.ArrowException) as error:
        problem = re.sub(r"^[A-Z_]+: |\[\w+\] ", "", str(error).partition("\n")[0])
        raise InputError(f"{url}: cannot be read: {_without_secret_quotes(problem, url)}") from None


@contextmanager
def _place(url: str, driver: ModuleType) -> Iterator[str]:
    """Yield the driver's name of a database; SQLite opens it read-only."""
    if not url.startswith(_SQLITE):
        yield url
        return
    path = Path(url.removeprefix(_SQLITE))
    if not path.is_file():
        raise InputError(f"{url}: there is no such file{did_you_mean(path)}")
    place = f"file:{quote(real_path(path))}?mode=ro"
    wal = Path(f"{real_path(path)}-wal")
    with open_regular(path) as file:
        is_in_wal_mode = file.read(20)[18:] == _WAL_MODE
    if is_in_wal_mode and not (wal.is_file() and wal.stat().st_size):
        # Without `immutable` SQLite makes two files beside the database, or fails if the folder is
        # read-only. SQLite locks nothing now, so only the file shows a change.
        state = file_state(path)
        yield f"{place}&immutable=1"
        if file_state(path) != state:
            raise changed_error(url)
        return
    try:
        yield place
    except driver.Error as error:
        if is_in_wal_mode and _NOT_WRITABLE.search(str(error)):
            raise InputError(
                f"{url}: cannot be read: it is in WAL mode, so SQLite must write a file "
                "beside it; copy it, with the file whose name ends in -wal, to a folder that you "
                "may write to"
            ) from None
        raise


def _without_secret_quotes(problem: str, url: str) -> str:
    """Return a driver's message without quotes of the URL's password and parameters. libpq quotes
    any part of a URL that libpq cannot parse."""
    told = without_secrets(url)

    def mask(quoted: re.Match[str]) -> str:
        return '"..."' if quoted[1] in url and quoted[1] not in told else quoted[0]

    return re.sub(r'"([^"]+)"', mask, problem)
