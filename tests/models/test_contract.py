"""Every model passes the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset
from foretaste.models.registry import MODEL_NAMES
from tests.models.contract import ModelContract, Trained, make_dataset, train_on_board


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("board") / "dataset")


@pytest.fixture(scope="module", params=MODEL_NAMES)
def trained(
    request: pytest.FixtureRequest, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    return train_on_board(request.param, dataset, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def retrained(trained: Trained, tmp_path: Path) -> Trained:
    """The same training once more."""
    return train_on_board(trained.name, trained.dataset, tmp_path / "run")


@pytest.fixture
def reseeded(trained: Trained, tmp_path: Path) -> Trained:
    """The same training with another seed."""
    return train_on_board(trained.name, trained.dataset, tmp_path / "run", seed=2)


class TestContract(ModelContract):
    pass
