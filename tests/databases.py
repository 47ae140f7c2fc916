"""Databases for tests: SQLite files, and a PostgreSQL server of the test's own."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import programs

if TYPE_CHECKING:
    from foretaste.serve.events import EventStore

PROGRAMS = Path("/usr/lib/postgresql")
"""Where Debian keeps the server's programs, by version."""


def require_adbc() -> None:
    """Skip the test if the drivers are not installed."""
    for kind in ("sqlite", "postgresql"):
        pytest.importorskip(f"adbc_driver_{kind}", reason="ADBC is not installed")


def write_sqlite(path: Path, *statements: str, rows: Sequence[Sequence[object]] = ()) -> str:
    """Run statements on a file, the last of them for each row; the URL of the file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        *first, last = statements
        for statement in first:
            connection.execute(statement)
        connection.executemany(last, rows) if rows else connection.execute(last)
    return f"sqlite:///{path}"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Yield the URL of an empty database; the test is skipped if PostgreSQL is not installed."""
    found = shutil.which("initdb") or max(map(str, PROGRAMS.glob("*/bin/initdb")), default=None)
    if found is None:
        programs.missing("PostgreSQL")
    folder = Path(found).resolve().parent
    # The server refuses to run as root.
    as_user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []

    def run(program: str, *arguments: str) -> None:
        command = [*as_user, str(folder / program), "-D", f"{home}/data", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=60)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        if as_user:
            shutil.chown(home, "nobody")
        run("initdb", "-U", "shop", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        options = f"-k {home} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off"
        # An open pipe of its output would make the caller wait.
        run("pg_ctl", "-w", "-l", f"{home}/log", "-o", options, "start")
        try:
            yield f"postgresql://shop@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")


def items_of(store: EventStore, user_ids: Iterable[str]) -> dict[str, list[str]]:
    """The items of these users by a store's events, without what they disliked."""
    return {user: [*found.items] for user, found in store.events_of(user_ids).items()}
