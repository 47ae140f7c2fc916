from __future__ import annotations

import pytest

from foretaste.data import Dataset
from foretaste.recommend import Recommender, load
from tests.runs.tiny import make_dataset, make_run

VAE = {"hidden": (16,), "latent": 8}


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("integers"), titles=True)


@pytest.fixture(scope="session")
def popularity(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Recommender:
    """A recommender with known scores, which mostly tie."""
    run = make_run(tmp_path_factory.mktemp("runs") / "popularity", dataset)
    return load(run.path, "cpu")


@pytest.fixture(scope="session", params=["ease", "vae", "gmf"])
def personal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dataset: Dataset
) -> Recommender:
    """Recommenders with lists that differ by user: new users are folded in by one pass, or by
    fitting a row."""
    settings: dict[str, dict[str, object]] = {"ease": {}, "vae": dict(VAE), "gmf": {"factors": 8}}
    path = tmp_path_factory.mktemp("runs") / request.param
    return load(make_run(path, dataset, request.param, **settings[request.param]).path, "cpu")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    """The same shop with text ids; some look like integers: ``007``."""
    root = tmp_path_factory.mktemp("text")
    return load(make_run(root / "run", make_dataset(root, spell="00{}")).path, "cpu")
