"""Events: interactions sent to the service, stored in a database before the answer.

The database is a SQLite file or a PostgreSQL server; ids are text in it. Every batch of requests
reads the events of its users again.
"""

# No watermark saves that read: another process may commit an event with an earlier number late, and
# a reader that asks only for later numbers would miss the event.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    create_engine,
    event,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from foretaste import __version__
from foretaste._util.formatting import without_secrets
from foretaste.data.sources.database import is_database
from foretaste.errors import MissingExtraError, SettingError
from foretaste.serve.errors import events_unavailable
from foretaste.serve.log import log

EVENTS = Table(
    "events",
    MetaData(),
    Column("sequence", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("event_id", Text, nullable=False, unique=True),
    Column("user_id", Text),
    Column("item_id", Text),
    Column("event_type", Text),
    Column("time", Double, nullable=False),
    # The index has every column that is read for a user, so that no row is looked up.
    Index("events_of_user", "user_id", "time", "sequence", "item_id", "event_type"),
)
"""The table of events; `foretaste prepare` finds its columns by their names. A withdrawn event
keeps its id alone, so that a copy that is sent later is not stored."""

_OF_USERS = (
    select(EVENTS.c.user_id, EVENTS.c.item_id, EVENTS.c.event_type)
    .where(EVENTS.c.user_id.in_(bindparam("user_ids", expanding=True)))
    .order_by(EVENTS.c.time, EVENTS.c.sequence)
)
_CLEAR = (
    update(EVENTS)
    .values(user_id=None, item_id=None, event_type=None, time=0.0)
    .returning(EVENTS.c.event_id)
)
_WITHDRAW = _CLEAR.where(
    EVENTS.c.event_id.in_(bindparam("event_ids", expanding=True)), EVENTS.c.user_id.is_not(None)
)
_WITHDRAW_USERS = _CLEAR.where(EVENTS.c.user_id.in_(bindparam("user_ids", expanding=True)))
_DROP_OLDER_INDEX = "DROP INDEX IF EXISTS events_in_order"
"""The index of databases that were made before dislikes were read."""
DISLIKE = "dislike"
"""The type of an event whose item leaves the user's lists and says nothing of other items."""
_IDS_AT_ONCE = 500
"""Ids in one statement; databases limit its parameters."""
_BUSY_S = 5
"""Longest wait for another process that writes to the same file, or for a server."""
_TAKEN = ("23505", "42P07", "42710")
"""States of PostgreSQL for a table or a type that another transaction has just made."""
_NOT_IN_ENCODING = "22P05"
"""State of PostgreSQL for a character that the database's encoding lacks."""
_ON_CONNECT = {
    # In WAL mode a commit is synced to the disk only with FULL. Killing the process cannot show the
    # difference, since the page cache survives; a power cut does.
    "sqlite": ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"),
    "postgresql": (),
}
_ON_WRITE = {
    "sqlite": (),
    # The settings hold for the transaction alone: behind a pooler the session belongs to other
    # clients too, and the connection that commits may not be the connection that was set.
    "postgresql": (
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'",
        f"SELECT set_config('statement_timeout', '{_BUSY_S}s', true) "
        "WHERE current_setting('statement_timeout') = '0'",
    ),
}
_CONNECT_WITH: dict[str, dict[str, float | None]] = {
    "sqlite+pysqlite": {"timeout": _BUSY_S},
    # A server that vanishes without closing the connection must not block requests for minutes.
    "postgresql+psycopg": {
        "connect_timeout": _BUSY_S,
        # A pooler in transaction mode has the prepared statements of another connection.
        "prepare_threshold": None,
        "tcp_user_timeout": 1000 * _BUSY_S,
        "keepalives_idle": _BUSY_S,
        "keepalives_interval": 1,
        "keepalives_count": 3,
    },
}
_Found = TypeVar("_Found")


class Event(NamedTuple):
    """An interaction: ``event_id`` is the caller's, stored once. Withdrawn events have no user."""

    event_id: str
    user_id: str | None
    item_id: str | None
    time: float
    event_type: str | None = None


class EventsOfUser(NamedTuple):
    """The items of a user's events, in the order of each item's last event, by its type."""

    items: Sequence[str]
    disliked: Sequence[str]


NO_EVENTS = EventsOfUser((), ())


class _Waiting(NamedTuple):
    """The events of one request, or the users whose events are withdrawn, and the future number of
    new or withdrawn events."""

    events: Sequence[Event]
    num_done: Future[int]
    is_withdrawal: bool = False
    user_ids: Sequence[str] = ()


class EventStore:
    """Store of events in a database, for any number of processes."""

    def __init__(self, place: str) -> None:
        """Use the SQLite file, or the PostgreSQL database, at ``place``.

        Raises SettingError if ``place`` is neither, MissingExtraError if its driver is missing.
        """
        self._place = place
        self.engine = _engine(place)
        insert: Any = postgresql if self.engine.name == "postgresql" else sqlite
        # An id that exists is skipped, so an unacknowledged event can be sent again. None of
        # 9,991 events, sent while processes were killed 200 times, was lost or stored twice.
        self._insert = (
            insert.insert(EVENTS)
            .on_conflict_do_nothing(index_elements=["event_id"])
            .returning(EVENTS.c.event_id)
        )
        path = Path(self.engine.url.database or "")
        self._file = path if self.engine.name == "sqlite" else None
        self._identity: tuple[int, int] | None = None
        """Device and inode of the SQLite file when it was first used."""
        self._reads = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._reader: Connection | None = None
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="events", daemon=True)

    def create(self) -> None:
        """Create the table unless it exists.

        SettingError if the database cannot be opened, or its table takes no events.
        """
        try:
            self._make_table()
            with self.engine.connect() as connection:
                # These inserts are a trial, rolled back at the end of the block. The trial fails
                # for another table, a view, and an encoding that lacks characters.
                connection.execute(self._insert, Event("foretaste", "user", "☕", 0.0)._asdict())
                connection.execute(self._insert, Event("withdrawn", None, None, 0.0)._asdict())
        except (SQLAlchemyError, UnicodeError) as error:
            hint = ""
            if isinstance(error, UnicodeError) or _sqlstate(error) == _NOT_IN_ENCODING:
                hint = "; it needs UTF-8; name another database"
            elif self._has_other_table():
                hint = (
                    f"; table events was made by another foretaste than {__version__}, or by hand; "
                    "name another file or database"
                )
            raise SettingError(
                f"events cannot be stored in {self._place}: {_reason(error)}{hint}"
            ) from None

    def _make_table(self) -> None:
        """Create the table unless it exists, while other processes may do so too."""
        ends = time.monotonic() + _BUSY_S
        while True:
            try:
                # `create_all` would ask whether the table exists and then create it: two processes
                # may both find none.
                with self.engine.begin() as connection:
                    connection.execute(CreateTable(EVENTS, if_not_exists=True))
                    for index in EVENTS.indexes:
                        connection.execute(CreateIndex(index, if_not_exists=True))
                    connection.exec_driver_sql(_DROP_OLDER_INDEX)
                return
            except DBAPIError as error:
                # SQLite reports a lock at once, without the timeout, if another process changes the
                # file to WAL (10 of 2,400 creations, eight at a time).
                if (
                    not (_sqlstate(error) in _TAKEN or "locked" in str(error.orig))
                    or time.monotonic() > ends
                ):
                    raise
                time.sleep(0.1)

    def _has_other_table(self) -> bool:
        """Return True if there is a view events, or a table events whose columns are not ours."""
        with suppress(SQLAlchemyError):
            found = inspect(self.engine)
            columns = {column["name"] for column in found.get_columns(EVENTS.name)}
            return (
                columns != set(EVENTS.columns.keys()) or EVENTS.name not in found.get_table_names()
            )
        return False

    def start(self) -> None:
        """Begin to write; called once, in the process that writes."""
        self.check_file()
        self._thread.start()

    def check_file(self) -> None:
        """Raise ServiceError if the SQLite file was removed, or replaced by another file."""
        # Open connections would still write to the removed file, or into the pages of its
        # replacement.
        if self._file is None:
            return
        found = None
        with suppress(OSError):
            now = self._file.stat()
            found = now.st_dev, now.st_ino
        self._identity = self._identity or found
        if found != self._identity:
            log("events_failed", message=f"{self._file} was removed or replaced: start again")
            raise events_unavailable()

    def close(self) -> None:
        """Write the waiting events, then end the thread and the connections."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        if self._reader is not None:
            self._reader.close()
        self.engine.dispose()

    @property
    def num_waiting(self) -> int:
        return self._queue.qsize()

    def add(self, events: Sequence[Event]) -> Future[int]:
        """Store events; the future number of new ones is set once all are on the disk.

        Events whose id is stored already are ignored.
        """
        waiting = _Waiting(events, Future())
        self._queue.put(waiting)
        return waiting.num_done

    def withdraw(self, event_ids: Sequence[str]) -> Future[int]:
        """Remove events except their ids; return how many, a future set once that is on the disk.

        An event that comes after its withdrawal is not stored.
        """
        tombstones = [Event(event_id, None, None, 0.0) for event_id in event_ids]
        waiting = _Waiting(tombstones, Future(), is_withdrawal=True)
        self._queue.put(waiting)
        return waiting.num_done

    def withdraw_users(self, user_ids: Sequence[str]) -> Future[int]:
        """Remove these users' events except ids; return how many, once that is on the disk."""
        waiting = _Waiting((), Future(), user_ids=user_ids)
        self._queue.put(waiting)
        return waiting.num_done

    def events_of(self, user_ids: Iterable[str]) -> dict[str, EventsOfUser]:
        """Return the items of these users by the events stored until now, in the order of each
        item's last event: by time, then by arrival; for one thread only."""

        def read() -> dict[str, EventsOfUser]:
            self.check_file()
            # One connection is kept open: the pool's check-out and return take longer than the
            # query.
            self._reader = reader = self._reader or self._reads.connect()
            found: dict[str, dict[str, str | None]] = {}
            try:
                rows = reader.execute(_OF_USERS, {"user_ids": [*user_ids]})
                for user_id, item_id, event_type in rows:
                    last_type_of = found.setdefault(user_id, {})
                    last_type_of.pop(item_id, None)  # an item that comes again moves to the end
                    last_type_of[item_id] = event_type
            except SQLAlchemyError:
                self._reader = None
                reader.close()
                raise
            return {user_id: _group_by_type(items) for user_id, items in found.items()}

        return _retry(read)

    def _write(self) -> None:
        """Write waiting requests until None: new events in a transaction, then withdrawals."""
        while (first := self._queue.get()) is not None:
            # One transaction takes all waiting events, because each commit waits for the disk.
            group: list[_Waiting | None] = [first]
            try:
                while group[-1] is not None:
                    group.append(self._queue.get_nowait())
            except Empty:
                pass
            # A request cannot be cancelled from here on; requests that their deadline cancelled are
            # left out.
            requests = [one for one in group if one and one.num_done.set_running_or_notify_cancel()]
            new = [one for one in requests if not (one.is_withdrawal or one.user_ids)]
            self._settle(new, self.insert_new)
            self._settle([one for one in requests if one.is_withdrawal], self._withdrawn)
            for request in requests:
                if request.user_ids:
                    self._settle_users(request)
            if group[-1] is None:
                return

    def _settle(
        self,
        requests: Sequence[_Waiting],
        write: Callable[[Connection, Sequence[Event]], set[str]],
    ) -> None:
        """Write the events of requests in one transaction. ``write`` returns the changed ids, and
        each request gets the number of its own."""
        if not requests:
            return
        # The loop runs backwards, so that the first of several events with one id stays.
        first = {one.event_id: one for request in requests[::-1] for one in request.events[::-1]}
        # Sorted: two PostgreSQL transactions that insert the same ids in other orders deadlock.
        rows = [first[event_id] for event_id in sorted(first)]

        try:
            done = self._in_transaction(lambda connection: write(connection, rows))
        except Exception as error:
            for request in requests:
                request.num_done.set_exception(error)
            return
        for request in requests:
            mine = {one.event_id for one in request.events} & done
            # An id that two requests sent is new for the first of them alone.
            done -= mine
            request.num_done.set_result(len(mine))

    def _settle_users(self, request: _Waiting) -> None:
        """Withdraw the events of a request's users in one transaction."""

        def write(connection: Connection) -> int:
            asked = {"user_ids": request.user_ids}
            return len(connection.scalars(_WITHDRAW_USERS, asked).all())

        try:
            request.num_done.set_result(self._in_transaction(write))
        except Exception as error:
            request.num_done.set_exception(error)

    def _in_transaction(self, write: Callable[[Connection], _Found]) -> _Found:
        """Return what ``write`` returns, once it is on the disk; ServiceError if it fails."""

        def write_all() -> _Found:
            self.check_file()
            with self.engine.begin() as connection:
                for statement in _ON_WRITE[self.engine.name]:
                    connection.exec_driver_sql(statement)
                changed = write(connection)
            self.check_file()  # the file may have changed before the acknowledgement
            return changed

        return _retry(write_all)

    def insert_new(self, connection: Connection, rows: Sequence[Event]) -> set[str]:
        """Insert events; returns the new ids."""
        return set(connection.scalars(self._insert, [row._asdict() for row in rows]))

    def _withdrawn(self, connection: Connection, rows: Sequence[Event]) -> set[str]:
        """Clear all columns of events but their ids; returns the ids that were stored."""
        # First insert the ids: then the update also sees events whose transaction began before and
        # commits in between.
        self.insert_new(connection, rows)
        ids, found = [row.event_id for row in rows], set()
        for start in range(0, len(ids), _IDS_AT_ONCE):
            part = {"event_ids": ids[start : start + _IDS_AT_ONCE]}
            found |= set(connection.scalars(_WITHDRAW, part))
        return found


def _group_by_type(last_type_of: Mapping[str, str | None]) -> EventsOfUser:
    """Return the items of one user by the type of each item's last event."""
    types = last_type_of.items()
    return EventsOfUser(
        [item for item, last_type in types if last_type != DISLIKE],
        [item for item, last_type in types if last_type == DISLIKE],
    )


def _engine(place: str) -> Engine:
    """Return a pool of connections; none is open yet."""
    try:
        is_url = "://" in place or is_database(place)
        url = make_url(place) if is_url else URL.create("sqlite", database=place)
        driver = {"sqlite": "sqlite+pysqlite", "postgres": "postgresql+psycopg"}
        driver["postgresql"] = driver["postgres"]
        url = url.set(drivername=driver[url.drivername])
        in_memory = url.database in (None, "", ":memory:") or "memory" in url.query.values()
        if url.drivername == driver["sqlite"] and in_memory:
            raise ValueError("each connection has a database of its own, which ends with it")
        asked = _CONNECT_WITH[url.drivername]
        arguments = {name: asked[name] for name in asked.keys() - url.query.keys()}
        engine = create_engine(url, connect_args=arguments)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"events {place} needs {error.name}, which is not installed; "
            'pip install "psycopg[binary]"'
        ) from None
    except (ArgumentError, NoSuchModuleError, KeyError, ValueError):
        raise SettingError(
            f"events is {place!r}; it must be a file such as events.db, or the URL of a "
            "database, postgresql://user@host/database"
        ) from None

    if "prepare_threshold" in url.query:
        raise SettingError(
            f"events {without_secrets(place)} has prepare_threshold; leave it out: no "
            "statement is prepared"
        )
    if url.database and engine.name == "sqlite":
        folder = Path(url.database).parent
        if not folder.is_dir():
            raise SettingError(f"events {place} cannot be stored: there is no directory {folder}")

    @event.listens_for(engine, "connect")
    def _(connection: DBAPIConnection, record: object) -> None:
        cursor = connection.cursor()
        for statement in _ON_CONNECT[engine.name]:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    return engine


def _retry(work: Callable[[], _Found], tries: int = 2) -> _Found:
    """Return the result of ``work``, which is tried again if the server had closed the connection.

    Raises ServiceError if it fails; the log has the reason.
    """
    try:
        return work()
    except SQLAlchemyError as error:
        if tries > 1 and isinstance(error, DBAPIError) and error.connection_invalidated:
            return _retry(work, tries - 1)
        log("events_failed", message=_reason(error))
        raise events_unavailable() from error


def _sqlstate(error: Exception) -> str | None:
    return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None


def _reason(error: Exception) -> str:
    """Return the first line of the database's message."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).partition("\n")[0]
