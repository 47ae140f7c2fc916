"""Every kind of source, through every option that takes one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from foretaste.data import open_dataset
from foretaste.serve.store import ModelStore
from tests.cli.conftest import call, refused
from tests.databases import postgresql_server, require_adbc, write_sqlite

PLAYS = pd.DataFrame(
    {"user_id": [n % 7 for n in range(70)], "item_id": [n * n % 11 for n in range(70)]}
)
NUM_PAIRS = len(PLAYS.drop_duplicates())
ITEMS = pd.DataFrame({"item_id": range(11), "title": [f"Title {n}" for n in range(11)], "stock": 1})


def folder(rows: pd.DataFrame, name: str) -> str:
    Path(name).mkdir()
    rows.to_csv(f"{name}/part.csv", index=False)
    return name


def sqlite(rows: pd.DataFrame, name: str) -> str:
    require_adbc()
    columns, marks = ", ".join(rows.columns), ", ".join("?" * len(rows.columns))
    create, insert = f"CREATE TABLE found ({columns})", f"INSERT INTO found VALUES ({marks})"
    write_sqlite(Path(f"{name}.db"), create, insert, rows=rows.astype(object).values.tolist())
    return f"sqlite:///{name}.db"


def postgresql(rows: pd.DataFrame, name: str, server: str) -> str:
    from adbc_driver_postgresql import dbapi

    schema = f'"{name}"'
    columns = ", ".join(f"{column} text" for column in rows.columns)
    marks = ", ".join(f"${place}" for place in range(1, len(rows.columns) + 1))
    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"CREATE TABLE {schema}.found ({columns})")
        insert = f"INSERT INTO {schema}.found VALUES ({marks})"
        cursor.executemany(insert, rows.astype(str).values.tolist())
        connection.commit()
    return f"{server}?options=-csearch_path%3D{name}"


def file(suffix: str, write: Callable[[pd.DataFrame, str], object]) -> Callable[..., str]:
    def written(rows: pd.DataFrame, name: str) -> str:
        write(rows, name + suffix)
        return name + suffix

    return written


KINDS: dict[str, Callable[..., str]] = {
    "csv": file(".csv", lambda rows, path: rows.to_csv(path, index=False)),
    "csv.gz": file(".csv.gz", lambda rows, path: rows.to_csv(path, index=False)),
    "parquet": file(".parquet", lambda rows, path: rows.to_parquet(path)),
    "jsonl": file(".jsonl", lambda rows, path: rows.to_json(path, orient="records", lines=True)),
    "folder": folder,
    "pattern": lambda rows, name: folder(rows, name) + "/p*.csv",
    "sqlite": sqlite,
    "postgresql": postgresql,
}


@pytest.fixture
def server() -> Iterator[str]:
    require_adbc()
    with postgresql_server() as url:
        yield url


def run(line: str) -> str:
    done = call(*line.split())
    assert done.status == 0, done.err
    return done.out


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_takes_every_kind_of_source(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    more = [request.getfixturevalue("server")] if kind == "postgresql" else []

    def stored(rows: pd.DataFrame, name: str) -> str:
        return KINDS[kind](rows.drop_duplicates(), name, *more)

    plays, items = stored(PLAYS, "plays"), stored(ITEMS, "items")
    run(f"prepare {plays} --protocol none --items {items} --output all")
    assert open_dataset("all").manifest.counts["num_rows_read"] == NUM_PAIRS
    assert open_dataset("all").manifest.notes["titles"].endswith(", for 6 of 6 items")

    parts = {"train": PLAYS.user_id < 5}
    for user, split in ((5, "validation"), (6, "test")):
        parts[f"{split}-fold-in"] = (PLAYS.user_id == user) & (PLAYS.item_id < 4)
        parts[split] = (PLAYS.user_id == user) & (PLAYS.item_id >= 4)
    options = [f"--{part} {stored(PLAYS[rows], part)}" for part, rows in parts.items()]
    candidates = stored(pd.DataFrame({"user_id": 6, "item_id": [0, 1]}), "candidates")
    run(f"prepare {' '.join(options)} --test-candidates {candidates} --output given")
    given = open_dataset("given").manifest
    assert given.counts["num_rows_read"] == NUM_PAIRS
    assert given.counts["num_test_candidates"] == 2

    run(f"train popularity {plays} --protocol none --items {items} --run run")
    histories = stored(pd.DataFrame({"user_id": [8, 9], "item_id": [0, 1]}), "histories")
    answers = json.loads(
        run(
            f"recommend run --histories-file {histories} --items {items} --where stock=1 "
            "--format json"
        )
    )
    assert [answer["user_id"] for answer in answers] == [8, 9]
    if kind not in ("jsonl", "folder", "pattern"):  # such files have one id per line
        users = stored(pd.DataFrame({"user_id": [3, 5]}), "users")
        assert run(f"recommend run --users-file {users}").count("user ") == 2


def test_a_service_takes_a_database_of_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url, given = KINDS["sqlite"](ITEMS, "items"), []
    monkeypatch.setattr("foretaste.serve.serve", lambda _, config, **_more: given.append(config))
    KINDS["csv"](PLAYS, "plays")
    run("train popularity plays.csv --protocol none --run run")
    run(f"serve run --items {url}")
    (config,) = given
    store = ModelStore([Path("run")], "cpu", items=config.items)
    store.load()
    assert "stock" in store.models[0].recommender.item_rules._items.column_names


SECRETS = (
    "mysql://me:s3cret@host/db",
    "postgresql+psycopg://me:s3cret@host/db",
    "snowflake://me:s3cret@host/db",
    "mongodb+srv://me:s3cret@host/db",
    "POSTGRESQL://me:s3cret@127.0.0.1:9/db",
    "postgresql://me:s3cret@127.0.0.1:9/db",
    " postgresql://me:s3cret@host/db",
    "postgresql//me:s3cret@host/db",
    "jdbc:postgresql://host/db?user=me&password=s3cret",
    "host=h user=me password=s3cret",
    "duckdb:///x?password=s3cret",
    "s3://KEY:s3cret@bucket/plays",
    "https://host/plays.csv?X-Amz-Signature=s3cret",
)


@pytest.mark.parametrize(
    "line",
    [
        "prepare {}",
        "prepare --train plays.csv --test {}",
        "prepare --train {} --test plays.csv",
        "prepare plays.csv --items {}",
        "prepare plays.csv --like {}",
        "prepare plays.csv --source-dir {}",
        "train popularity {}",
        "train popularity plays.csv --items {}",
        "train ease plays.csv --from={}",
        "tune ease {}",
        "compete {}",
        "evaluate {}",
        "evaluate run --dataset {}",
        "recommend run --users-file {}",
        "recommend run --histories-file {}",
        "recommend run --user 1 --items {}",
        "recommend run --user 1 --rules-file {}",
        "recommend run --user 1 --exclude @{}",
        "serve run --events {}",
        "serve run --items {}",
        "serve run --rules-file {}",
        "serve run --token-file {}",
    ],
)
def test_no_way_in_prints_a_secret(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    KINDS["csv"](PLAYS, "plays")
    if " run" in line:
        run("train popularity plays.csv --protocol none --run run")
    for source in SECRETS:
        done = call(*(word.replace("{}", source) for word in line.split()))
        assert done.status == 2, done.err
        assert "s3cret" not in done.out + done.err


@pytest.mark.parametrize("source", SECRETS[:10])
def test_a_database_that_is_not_read_is_called_one(source: str) -> None:
    if source.startswith("postgresql:"):
        return
    shown = source.partition("?")[0].replace(":s3cret@", "@").replace("s3cret", "...")
    refused(call("prepare", source), shown, "sqlite:///events.db")
