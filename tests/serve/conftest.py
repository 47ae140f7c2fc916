"""Tiny runs of one shop, and their service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from foretaste.data import Dataset
from foretaste.serve.app import Service
from foretaste.serve.config import ServeConfig
from foretaste.serve.events import EventStore
from foretaste.serve.store import ModelStore
from tests.databases import postgresql_server
from tests.runs.tiny import make_dataset, make_run

VAE = {"hidden": (16,), "latent": 8}


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("served"), titles=True)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Path:
    """A folder with runs: ease, vae, gmf and popularity."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "ease", dataset, "ease")
    make_run(folder / "vae", dataset, "vae", **VAE)
    make_run(folder / "gmf", dataset, "gmf", factors=8)
    make_run(folder / "popularity", dataset)
    return folder


@contextmanager
def serving(*paths: Path, **settings: Any) -> Iterator[tuple[TestClient, Service]]:
    """Yield a client of a service of these runs that is ready.

    Requests have a minute, because tests hold some back on busy machines.
    """
    given = {"device": "cpu", "access_log": False, "deadline_s": 60.0} | settings
    config = ServeConfig(**given)
    store = ModelStore(paths, "cpu", rules_file=config.rules_file, items=config.items)
    service = Service(store, config)
    if service.event_store is not None:
        service.event_store.create()
    with TestClient(service.app(), raise_server_exceptions=False) as client:
        client.headers["host"] = "127.0.0.1"
        if token := config.token():
            client.headers["authorization"] = f"Bearer {token.decode()}"
        yield client, service


@pytest.fixture(scope="session")
def client(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of ease, the default, and of vae, gmf and popularity; events are kept."""
    names = ("ease", "vae", "gmf", "popularity")
    events = tmp_path_factory.mktemp("events") / "events.db"
    with serving(*(runs / name for name in names), events=str(events)) as (client, _):
        yield client


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgresql_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    url: str = request.getfixturevalue("server")
    with closing(EventStore(url)) as store, store.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS events")
    return url
