"""A database gives the dataset of a CSV file with the same rows."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foretaste.cli.app import main
from foretaste.data import Dataset, open_or_prepare, prepare
from foretaste.data.request import PrepareRequest
from foretaste.data.sources import database
from foretaste.errors import InputError, SettingError
from tests.data.conftest import refuse
from tests.data.hostile_rows import hostile_rows, write_csv
from tests.databases import postgresql_server, require_adbc, write_sqlite
from tests.messages import raises

ROWS = hostile_rows()
CREATE = 'CREATE TABLE events ("user id" text, item_id text, rating text, timestamp text)'
PLAYS = [(n % 7, n * n % 11, 1.7e9 + n / 7) for n in range(70)]


@pytest.fixture(autouse=True)
def _adbc() -> None:
    require_adbc()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    require_adbc()
    with postgresql_server() as url:
        yield url


def execute(url: str, *statements: str, rows: Any = ()) -> None:
    """Run statements on a PostgreSQL server, the last statement for each row."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        *first, last = statements
        for statement in first:
            cursor.execute(statement)
        cursor.executemany(last, rows) if rows else cursor.execute(last)
        connection.commit()


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """A database of plays whose times have more digits than their text in SQLite."""
    return write_sqlite(
        tmp_path / "shop.db",
        "CREATE TABLE plays (user_id INTEGER, item_id, time REAL)",
        "INSERT INTO plays VALUES (?, ?, ?)",
        rows=PLAYS,
    )


def parts_of(dataset: Dataset) -> dict[str, str]:
    return {name: part.sha256 for name, part in dataset.manifest.parts.items()}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_table_is_the_dataset_of_a_csv_file_of_its_rows(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        insert = "INSERT INTO events VALUES (?, ?, ?, ?)"
        url = write_sqlite(tmp_path / "events.db", CREATE, insert, rows=ROWS)
    else:
        url = request.getfixturevalue("server")
        drop, insert = "DROP TABLE IF EXISTS events", "INSERT INTO events VALUES ($1, $2, $3, $4)"
        execute(url, drop, CREATE, insert, rows=ROWS)
    of_file = prepare(write_csv(tmp_path / "rows.csv", ROWS), tmp_path / "of-file")
    of_table = prepare(url, tmp_path / "of-table")
    assert of_table.manifest.digest == of_file.manifest.digest
    assert parts_of(of_table) == parts_of(of_file)
    (source,) = of_table.manifest.source
    assert source["num_rows"] == len(ROWS)
    assert source["query"] == 'SELECT * FROM "events"'


def test_values_of_any_type_are_read_as_they_are_written(server: str, tmp_path: Path) -> None:
    """The server's own settings for dates and numbers change nothing."""
    execute(
        server,
        "ALTER ROLE shop SET datestyle = 'German'",
        "ALTER ROLE shop SET extra_float_digits = 0",
        "ALTER ROLE shop SET timezone = 'Asia/Kathmandu'",
        "CREATE TABLE typed AS SELECT n % 7 AS user_id, uuid_in(md5((n * n % 11)::text)::cstring) "
        "AS item_id, to_timestamp(1.7e9 + n / 7.0) AS at, 1.7e9::float8 + n / 7.0 AS seconds, "
        "(n / 2.0)::numeric AS rating FROM generate_series(1, 70) AS n",
    )
    seconds = "SELECT user_id, item_id, seconds AS time FROM typed -- all"
    rows = prepare(server, tmp_path / "seconds", query=seconds)
    times = prepare(server, tmp_path / "times", query="SELECT * FROM typed;", time_column="at")
    assert rows.manifest.digest == times.manifest.digest
    assert times.manifest.id_types == {"user_id": "integer", "item_id": "text"}


def test_floating_point_keeps_its_digits(shop: str, tmp_path: Path) -> None:
    """The times of a user differ in the sixteenth digit, and their order decides the split."""
    near = [(user, item, 1.7e9 + item * 2.0**-22) for user in range(9) for item in range(5)]
    url = write_sqlite(
        tmp_path / "near.db",
        "CREATE TABLE near (user_id, item_id, time REAL)",
        "INSERT INTO near VALUES (?, ?, ?)",
        rows=near[::-1],
    )
    dataset = prepare(url, tmp_path / "near")
    assert dataset.items.ids(dataset.heldout("test").target.item_index) == [4] * 9
    assert prepare(shop, tmp_path / "all").manifest.counts["num_rows_read"] == 70


def test_a_database_is_read_beside_files(shop: str, tmp_path: Path) -> None:
    with (tmp_path / "more.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("user_id", "item_id", "time"), *PLAYS[:35]])
    half = f"SELECT * FROM plays WHERE time >= {PLAYS[35][2]!r}"
    both = prepare([tmp_path / "more.csv", shop], tmp_path / "both", query=half)
    assert both.manifest.digest == prepare(shop, tmp_path / "all").manifest.digest
    assert [source.get("query") for source in both.manifest.source] == [None, half]


def test_columns_that_begin_empty_are_read(tmp_path: Path) -> None:
    """The driver takes a column without a value in its first thousand rows for integers."""
    rows = [(n % 50, n % 53, None if n < 3000 else "soon") for n in range(4000)]
    url = write_sqlite(
        tmp_path / "shop.db",
        "CREATE TABLE plays (user_id, item_id, note)",
        "INSERT INTO plays VALUES (?, ?, ?)",
        rows=rows,
    )
    assert prepare(url, tmp_path / "data").manifest.counts["num_rows_read"] == 4000


def test_no_driver_prints_a_part_of_a_password() -> None:
    """libpq takes the text behind the first @ of a URL for the host."""
    url = "postgresql://me:se@cret@127.0.0.1:1/shop"
    refuse(url, "me@127.0.0.1:1/shop", re.compile("(?<=: ).*"))


def test_the_same_rows_are_found_prepared(shop: str, tmp_path: Path) -> None:
    root = tmp_path / "datasets"
    first = open_or_prepare(PrepareRequest.of(shop, root=root))
    assert first.path.name.startswith("shop-")
    assert open_or_prepare(PrepareRequest.of(shop, root=root)).path == first.path
    write_sqlite(tmp_path / "shop.db", "INSERT INTO plays VALUES (1, 2, 3)")
    assert open_or_prepare(PrepareRequest.of(shop, root=root)).path != first.path


def test_a_password_is_nowhere(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.replace("shop@", "shop:se%3Acret@") + "?application_name=cret2"
    execute(server, "CREATE TABLE few AS SELECT n % 9 AS user_id, n % 7 AS item_id "
            "FROM generate_series(1, 200) AS n")  # fmt: skip
    line = ["--query", "SELECT * FROM few", "--protocol", "none"]
    main(["prepare", url, *line])
    (made,) = Path("datasets").iterdir()
    main(["train", "popularity", str(made), "--run", str(tmp_path / "run")])
    for wrong in (f"{url}&port=1", url.replace("/postgres", "/cretary"), url.replace("//", "/")):
        with pytest.raises(SystemExit):
            main(["prepare", wrong, "--output", str(tmp_path / "none")])
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"cret@" in content or b"cret2" in content for content in written)
    printed = capsys.readouterr()
    assert "cret@" not in printed.out + printed.err
    assert "cret2" not in printed.out + printed.err
    manifest = json.loads(next(Path("datasets").rglob("manifest.json")).read_text())
    assert manifest["source"][0]["path"] == server


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_database_is_not_written_to(shop: str, tmp_path: Path) -> None:
    before = (tmp_path / "shop.db").read_bytes()
    with raises(InputError, "shop.db", re.compile("Failed.*syntax error")):
        prepare(shop, tmp_path / "data", query="DELETE FROM plays RETURNING *")
    prepare(shop, tmp_path / "data")
    assert (tmp_path / "shop.db").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"shop.db", "data"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:pa%zzword@127.0.0.1:1/db",
        "postgresql://u:word/pa@127.0.0.1:1/db",
        "postgresql://u:word?pa@127.0.0.1:1/db",
        "postgresql://u:pa%00word@127.0.0.1:1/db",
        "postgresql://u@127.0.0.1:1/db?password=pa%zzword",
        "postgresql://u@127.0.0.1:1/db?password=pa&word",
    ],
)
def test_a_password_that_the_driver_cannot_read_is_not_quoted(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        prepare(url, tmp_path / "data", query="SELECT 1")
    assert "word" not in str(error.value)


def test_a_table_may_be_called_like_the_database(tmp_path: Path) -> None:
    url = write_sqlite(tmp_path / "a.db", "CREATE TABLE sqlitefoo (user_id, item_id)")
    write_sqlite(tmp_path / "a.db", "INSERT INTO sqlitefoo VALUES (1, 2)")
    assert len(prepare(url, tmp_path / "data", protocol="none").items) == 1


def test_mistakes_are_named(shop: str, server: str, tmp_path: Path) -> None:
    def refused(source: Any, *named: object, **settings: Any) -> None:
        with raises((InputError, SettingError), *named):
            prepare(source, tmp_path / "data", **settings)

    refused("sqlite:///shpo.db", "shpo.db", "shop.db")
    refused(Path("sqlite:///shop.db"), "sqlite:/shop.db")
    refused(shop, re.compile("Failed.*no such column: sku"), query="SELECT sku FROM plays")
    refused(server, "a", query='SELECT 1 AS a, 2 AS "A"')
    refused(server, re.compile("Failed.*division by zero"), query="SELECT 1 / 0 AS user_id")
    refused(
        server.replace("/postgres", "/nodb"), "nodb", re.compile("Failed.*nodb.*does not exist")
    )
    (tmp_path / "raw.csv").write_text("user_id,item_id\n1,2\n")
    refused("raw.csv", "query", "SELECT 1", "raw.csv", query="SELECT 1")
    (tmp_path / "text.db").write_text("no database at all, but text" * 99)
    refused("sqlite:///text.db", "text.db", re.compile("Failed.*file is not a database"))
    write_sqlite(tmp_path / "shop.db", "CREATE TABLE more (user_id, item_id)")
    refused(shop, "shop.db", "more", "plays", "--query")
    write_sqlite(tmp_path / "none.db", "VACUUM")
    refused("sqlite:///none.db", "none.db", "--query")
    binary = "SELECT x'ff' AS user_id, 1 AS item_id"
    refused(shop, "user_id", "hex(user_id)", query=binary)
    unread = binary.replace("AS user_id", "AS photo, 1 AS user_id")
    assert prepare(shop, tmp_path / "unread", query=unread, protocol="none").users.ids() == [1]
    empty = "SELECT NULL AS user_id, 1 AS item_id"
    refused(shop, "shop.db", 0, 0, "user_id", query=empty)


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[Path]:
    """A database in WAL mode that a program has open, and a copy of its files in another folder."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE plays (user_id, item_id)")
        connection.executemany("INSERT INTO plays VALUES (?, ?)", [play[:2] for play in PLAYS])
        connection.commit()
        yield path


def test_a_database_in_wal_mode_is_read_while_it_is_written_to(wal: Path, tmp_path: Path) -> None:
    dataset = prepare(f"sqlite:///{wal}", tmp_path / "data", protocol="none")
    assert dataset.manifest.counts["num_rows_read"] == 70


@pytest.mark.parametrize("has_empty_wal", [False, True])
def test_nothing_is_left_beside_a_database_that_nobody_has_open(
    wal: Path, tmp_path: Path, has_empty_wal: bool
) -> None:
    with closing(sqlite3.connect(wal)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (tmp_path / "copy").mkdir()
    copy = shutil.copy(wal, tmp_path / "copy")
    if has_empty_wal:
        Path(f"{copy}-wal").touch()
    before = sorted((tmp_path / "copy").iterdir())
    dataset = prepare(f"sqlite:///{copy}", tmp_path / "data", protocol="none")
    assert dataset.manifest.counts["num_rows_read"] == 70
    assert sorted((tmp_path / "copy").iterdir()) == before


@pytest.mark.parametrize(
    "problem", ["unable to open database file", "attempt to write a readonly database"]
)
def test_a_database_in_wal_mode_needs_a_file_beside_it(wal: Path, problem: str) -> None:
    """A fake driver is used: the tests may run as root, who may write to every folder."""
    opened = database._place(f"sqlite:///{wal}", sqlite3)
    opened.__enter__()
    error = sqlite3.OperationalError(problem)
    with raises(InputError, "shop.db", "-wal"):
        opened.__exit__(type(error), error, None)


def test_a_database_that_changes_during_the_read_is_refused(wal: Path) -> None:
    with closing(sqlite3.connect(wal)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        opened = database._place(f"sqlite:///{wal}", sqlite3)
        assert opened.__enter__().endswith("&immutable=1")
        connection.execute("INSERT INTO plays VALUES (1, 2)")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with raises(InputError, "shop.db"):
        opened.__exit__(None, None, None)


def test_a_full_temporary_folder_is_named(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = partial(Path.open, Path("/dev/full"), "wb")
    monkeypatch.setattr(database, "NamedTemporaryFile", lambda **_: full())
    with raises(InputError, "No space left", "TMPDIR"):
        prepare(shop, tmp_path / "data")
