"""Tiny runs of one shop, and the service of them in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from foretaste.data import Dataset
from foretaste.serve.app import Service
from foretaste.serve.config import ServeConfig
from foretaste.serve.models import ModelStore
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
    """Yield a client of a service of these runs that is ready."""
    config = ServeConfig(**{"device": "cpu", "access_log": False} | settings)
    store = ModelStore(paths, "cpu")
    service = Service(store, config)
    with TestClient(_started(service), raise_server_exceptions=False) as client:
        client.headers["host"] = "127.0.0.1"
        if token := config.token():
            client.headers["authorization"] = f"Bearer {token.decode()}"
        yield client, service


def _started(service: Service) -> Any:
    """The application of a service, which starts and stops the queue as its server would."""
    app = service.app()

    async def with_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        await receive()
        service.batcher.start()
        await service.reload()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await service.batcher.close()
        await send({"type": "lifespan.shutdown.complete"})

    return with_lifespan


@pytest.fixture(scope="session")
def client(runs: Path) -> Iterator[TestClient]:
    """A client of ease, the default, and of vae, gmf and popularity."""
    names = ("ease", "vae", "gmf", "popularity")
    with serving(*(runs / name for name in names)) as (client, _):
        yield client
