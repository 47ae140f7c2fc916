"""Each event is on the disk once before it is acknowledged, and every process reads it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import connection as pipes
from pathlib import Path
from typing import Any

import pytest

from foretaste.errors import SettingError
from tests import programs
from tests.databases import items_of
from tests.forks import fork

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
from sqlalchemy import Connection

from foretaste.serve.errors import ServiceError
from foretaste.serve.events import Event, EventStore
from tests.messages import raises, says

WRITER = """
import os, sys
from foretaste.serve.events import Event, EventStore
store = EventStore(sys.argv[1])
store.create()
store.start()
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    store.add([Event(f"event {number}", "ana", str(number), 0.0)]).result(30)
    os.write(1, f"acknowledged {number}\\n".encode())
store.close()
"""


@pytest.fixture
def store(place: str) -> Iterator[EventStore]:
    with closing(EventStore(place)) as store:
        store.create()
        store.start()
        yield store


def events(*ids: str, user: str = "ana", item: str = "nocturne") -> list[Event]:
    return [Event(one, user, item, 1.7e9) for one in ids]


def test_an_event_is_kept_once(store: EventStore) -> None:
    assert store.add(events("a", "b", "a")).result(30) == 2
    assert store.add(events("b", "c", item="bolero")).result(30) == 1
    (found,) = items_of(store, ["ana", "ben"]).values()
    assert sorted(found) == ["bolero", "nocturne"]


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("what", ["removed", "replaced", "made anew"])
def test_a_file_that_is_removed_or_replaced_acknowledges_nothing(
    tmp_path: Path, what: str, when: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path, backup = tmp_path / "events.db", tmp_path / "backup.db"
    with closing(EventStore(str(path))) as store:
        store.create()
        store.start()
        assert store.add(events("a")).result(30) == 1
        with closing(sqlite3.connect(path)) as database:
            database.execute("VACUUM INTO ?", [str(backup)])

        def change() -> None:
            path.unlink()
            if what == "replaced":
                backup.rename(path)
            elif what == "made anew":
                with closing(EventStore(str(path))) as other:
                    other.create()

        write = store.insert_new

        def change_then_write(*args: Any) -> set[str]:
            change()
            return write(*args)

        if when == "before":
            change()
        else:
            store.insert_new = change_then_write  # type: ignore[method-assign]
        for waiting in (store.add(events("b")), store.withdraw(["a"])):
            with pytest.raises(ServiceError) as caught:
                waiting.result(30)
            assert (caught.value.status, caught.value.code) == (503, "events_unavailable")
        with pytest.raises(ServiceError):
            items_of(store, ["ana"])
    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    says(line["message"], path)
    with closing(EventStore(str(path))) as again:
        again.create()
        again.start()
        again.add(events("b")).result(30)
        assert "nocturne" in items_of(again, ["ana"])["ana"]


def test_a_withdrawn_event_leaves_its_id_alone(store: EventStore) -> None:
    store.add(events("a", "b", item="bolero") + events("c")).result(30)
    assert store.withdraw(["b", "a", "b", "late"]).result(30) == 2
    assert items_of(store, ["ana"]) == {"ana": ["nocturne"]}
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT event_id, user_id, item_id, event_type, time FROM events ORDER BY event_id"
        ).all()
    gone = [(one, None, None, None, 0.0) for one in ("a", "b", "late")]
    assert sorted(map(tuple, rows)) == sorted([*gone, ("c", "ana", "nocturne", None, 1.7e9)])
    assert store.add(events("a", "late", "new", item="bolero")).result(30) == 1
    assert sorted(items_of(store, ["ana"])["ana"]) == ["bolero", "nocturne"]
    assert store.withdraw(["a", "late", "new"]).result(30) == 1
    assert items_of(store, ["ana"]) == {"ana": ["nocturne"]}


def test_all_events_of_a_user_are_withdrawn(store: EventStore) -> None:
    store.add(events("a", "b", item="bolero") + events("c") + events("d", user="lou")).result(30)
    assert store.withdraw_users(["ana", "nobody"]).result(30) == 3
    assert items_of(store, ["ana", "lou"]) == {"lou": ["nocturne"]}
    assert store.add(events("a", item="bolero")).result(30) == 0, "a late copy is not stored"
    assert store.withdraw_users(["ana"]).result(30) == 0


def test_events_and_their_withdrawals_at_once_end_withdrawn(place: str) -> None:
    """The events end withdrawn no matter which process is first."""
    names = [f"{number}" for number in range(200)]
    with closing(EventStore(place)) as one, closing(EventStore(place)) as other:
        for store in (one, other):
            store.create()
            store.start()
        waiting = []
        for name in names:
            waiting += [one.add(events(name, user="eve")), other.withdraw([name])]
        added, withdrawn = ([f.result(60) for f in waiting[start::2]] for start in (0, 1))
        assert items_of(one, ["eve"]) == {}
        assert added == withdrawn, "withdrawn are those that were kept before"


def test_more_are_withdrawn_than_one_statement_takes(store: EventStore) -> None:
    ids = [f"many {number}" for number in range(1_234)]
    assert store.add(events(*ids, user="lou")).result(30) == 1_234
    assert store.withdraw([*ids[1:], "none"]).result(30) == 1_233
    assert items_of(store, ["lou"]) == {"lou": ["nocturne"]}


def test_threads_that_send_the_same_events_count_each_once(store: EventStore) -> None:
    def send(start: int) -> int:
        ids = [f"{(start + n) % 50}" for n in range(50)]
        return sum(store.add(events(*ids[at : at + 5])).result(30) for at in range(0, 50, 5))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(send, [0, 7, 20, 33])) == 50


def test_other_processes_read_acknowledged_events_at_once(store: EventStore, place: str) -> None:
    with closing(EventStore(place)) as other:
        assert items_of(other, ["ana"]) == {}
        for number in range(5):
            store.add(events(str(number), item=f"item {number}")).result(30)
            assert f"item {number}" in items_of(other, ["ana"])["ana"]


@contextmanager
def started(place: Path) -> Iterator[EventStore]:
    """Yield a store in a file that accepts events."""
    with closing(EventStore(str(place))) as store:
        store.create()
        store.start()
        yield store


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Keep everybody else from writing to the file inside the context."""
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("COMMIT")


def test_waiting_events_are_one_transaction(tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    with started(place) as store:
        with locked(place):
            waiting = [store.add(events("first"))]
            while store.num_waiting:
                pass
            waiting += [store.add(events(f"{number}")) for number in range(20)]
            assert not any(one.done() for one in waiting)
        assert [one.result(30) for one in waiting] == [1] * 21
        with closing(sqlite3.connect(place)) as reader:
            # Each commit ends with its own frame, which has the size of the database.
            frames = commits_in(Path(f"{place}-wal"))
            assert reader.execute("SELECT count(*) FROM events").fetchone() == (21,)
    assert len(frames) <= 4


def test_an_event_that_waits_in_two_requests_is_new_in_one(tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    with started(place) as store:
        with locked(place):
            waiting = [store.add(events("first"))]
            while store.num_waiting:
                pass
            waiting += [store.add(events("a", "b")), store.add(events("b", "c"))]
        assert [one.result(30) for one in waiting] == [1, 2, 1]


def test_events_that_are_cancelled_while_waiting_are_not_written(tmp_path: Path) -> None:
    place = tmp_path / "events.db"
    with started(place) as store:
        with locked(place):
            first = store.add(events("first"))
            while not first.running():
                pass
            second = store.add(events("second", item="bolero"))
            assert (first.cancel(), second.cancel()) == (False, True)
        assert first.result(10) == 1
        assert store.add(events("third")).result(10) == 1
        assert items_of(store, ["ana"]) == {"ana": ["nocturne"]}


def commits_in(log: Path) -> list[int]:
    """The frames of a write-ahead log that end a transaction."""
    content = log.read_bytes()
    page = int.from_bytes(content[8:12], "big")
    starts = range(32, len(content), 24 + page)
    return [at for at in starts if int.from_bytes(content[at + 4 : at + 8], "big")]


def write_events(place: str, start: int, stdout: pipes.Connection) -> None:
    """Write events until this process is killed."""
    os.dup2(stdout.fileno(), 1)
    stdout.close()
    sys.argv = ["-c", place, str(start), "1000000"]
    exec(WRITER, {})


def test_the_log_is_synchronised_before_the_answer(tmp_path: Path) -> None:
    strace = programs.find("strace")
    if subprocess.run([strace, "-o", "/dev/null", "true"]).returncode:
        pytest.skip("strace may not trace here")
    trace = tmp_path / "trace"
    calls = "trace=pwrite64,fsync,fdatasync,write"
    traced = [strace, "-f", "-y", "-s", "100", "-e", calls, "-o", trace, sys.executable, "-c"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [*traced, WRITER, tmp_path / "events.db", "0", "3"],
        stdout=subprocess.DEVNULL,
        env=os.environ | path,
        timeout=60,
        check=True,
    )
    lines = [
        line for line in trace.read_text().splitlines() if "events.db" in line or "ackn" in line
    ]
    number, last = 0, ""
    for line in lines:
        if "write(1" in line and f"acknowledged {number}" in line:
            assert re.search(r"f(data)?sync\(.*events\.db-wal", last), last
            number += 1
        elif "-wal" in line:
            last = line
    assert number == 3


def test_no_acknowledged_event_is_lost_to_a_kill(place: str) -> None:
    acknowledged: list[int] = []
    with closing(EventStore(place)) as reader:
        for kill in range(3):
            start = len(acknowledged) // 2
            stdout, of_writer = multiprocessing.Pipe(duplex=False)
            writer = fork(write_events, place, start, of_writer)
            of_writer.close()
            with stdout, open(stdout.fileno(), "rb", closefd=False) as printed:
                lines = [printed.readline() for _ in range(20 + 7 * kill)]
                writer.kill()
                # Lines printed before the kill count too.
                lines += [line for line in printed if line.endswith(b"\n")]
            acknowledged += [int(line.split()[1]) for line in lines]
            writer.join(30)
            kept = items_of(reader, ["ana"])["ana"]
            assert {str(number) for number in acknowledged} <= set(kept)
        with reader.engine.begin() as connection:
            counts = connection.exec_driver_sql(
                "SELECT count(*), count(DISTINCT event_id), count(DISTINCT item_id) FROM events"
            ).one()
        assert len(set(counts)) == 1


def test_the_longest_ids_are_kept(store: EventStore) -> None:
    """The ids do not compress, and an index has two at a time."""
    draw = random.Random(3)
    one, two = ("".join(draw.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1024)) for _ in "ab")
    assert store.add(events(one, user=one, item=two)).result(30) == 1
    assert items_of(store, [one]) == {one: [two]}


def test_processes_that_start_together_make_one_table(place: str) -> None:
    with ThreadPoolExecutor(8) as threads:

        def create(_: int) -> None:
            with closing(EventStore(place)) as store:
                together.wait(30)
                store.create()

        together = threading.Barrier(8)
        assert list(threads.map(create, range(8))) == [None] * 8


def test_the_store_waits_for_a_process_that_is_creating_the_file(tmp_path: Path) -> None:
    """SQLite itself does not wait if it must change the file to WAL."""
    path = tmp_path / "events.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE another (column)")
        commit = threading.Timer(1.2, other.execute, ["COMMIT"])
        commit.start()
        with closing(EventStore(str(path))) as store:
            store.create()
        commit.join()


def test_a_database_that_has_not_every_text_is_refused(server: str) -> None:
    with (
        closing(EventStore(server)) as store,
        store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        connection.exec_driver_sql("DROP DATABASE IF EXISTS latin")
        connection.exec_driver_sql(
            "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        )
    with (
        closing(EventStore(server.replace("/postgres", "/latin"))) as store,
        raises(SettingError, "latin", "UTF-8"),
    ):
        store.create()


def settings(connection: Connection) -> tuple[str, str]:
    names = ("synchronous_commit", "statement_timeout")
    found = [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("options", "given", "inside"),
    [
        ("", ("on", "0"), ("on", "5s")),
        ("-csynchronous_commit%3Doff", ("off", "0"), ("on", "5s")),
        ("-csynchronous_commit%3Dlocal -cstatement_timeout%3D9s", ("local", "9s"), ("local", "9s")),
    ],
)
def test_settings_of_the_server_hold_for_a_transaction(
    server: str, options: str, given: tuple[str, str], inside: tuple[str, str]
) -> None:
    """A pooler gives the session to others afterwards."""
    with closing(EventStore(f"{server}?options={options.replace(' ', '%20')}")) as store:
        store.create()
        store.start()
        write, found = store.insert_new, []

        def note(connection: Connection, rows: Sequence[Event]) -> set[str]:
            found.append(settings(connection))
            return write(connection, rows)

        store.insert_new = note  # type: ignore[method-assign]
        for number in range(10):
            store.add(events(f"of {options} {number}")).result(30)
        store.withdraw([f"of {options} 0"]).result(30)
        assert found == [inside] * 11
        with store.engine.connect() as connection:
            assert settings(connection) == given
            prepared = connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements")
            assert prepared.scalar_one() == 0


def test_the_store_does_not_wait_for_a_hanging_server(server: str) -> None:
    """The wait is 5 s unless the URL sets another."""
    for url, expected in ((server, 5), (f"{server}?connect_timeout=60", 60)):
        with closing(EventStore(url)) as store, store.engine.connect() as connection:
            own = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
            assert int(own["connect_timeout"]) == expected


def test_a_url_prepares_no_statements(server: str) -> None:
    with raises(SettingError, "prepare_threshold"):
        EventStore(f"{server}?prepare_threshold=0")


def test_a_server_that_was_restarted_is_asked_again(server: str) -> None:
    with closing(EventStore(server)) as store, closing(EventStore(server)) as other:
        store.create()
        store.start()
        store.add(events("before", user="zoe")).result(30)
        with other.engine.begin() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        assert items_of(store, ["zoe"]) == {"zoe": ["nocturne"]}
        assert store.add(events("after", user="zoe", item="bolero")).result(30) == 1


def test_places_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but text" * 99)
    for place, *named in (
        ("mysql://host/shop", "events", "mysql://host/shop", "events.db"),
        ("sqlite:///:memory:", "events", "sqlite:///:memory:", "events.db"),
        ("host=h user=me", "events", "host=h user=me", "events.db"),
        (tmp_path / "none" / "events.db", "none/events.db", "none"),
        (tmp_path / "text.db", "text.db", "file is not a database"),
    ):
        with raises(SettingError, *named), closing(EventStore(str(place))) as store:
            store.create()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("postgresql://shop@127.0.0.1:9/shop", "refused"),
        ("postgresql://shop@127.0.0.1:9/shop?sslmode=never", "sslmode"),
        ("/dev/full", "database or disk is full"),
    ],
)
def test_a_hint_is_given_only_if_its_cause_was_seen(place: str, reason: str) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    failed = re.compile(f"(?s)(?<=stored in ).*{reason}.*")
    with closing(EventStore(place)) as store, raises(SettingError, failed) as error:
        store.create()
    for hint in ("UTF-8", "name another"):
        assert hint not in str(error.value)


def test_a_password_is_not_shown() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    shown, reason = "postgresql://shop@127.0.0.1:9/shop", re.compile("(?s)(?<=: ).*refused.*")
    with (
        closing(EventStore("postgresql://shop:secret@127.0.0.1:9/shop")) as store,
        raises(SettingError, shown, reason) as error,
    ):
        store.create()
    assert "secret" not in str(error.value)
