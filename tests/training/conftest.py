"""A small generated dataset, under every protocol that training treats differently."""

from __future__ import annotations

import pyarrow as pa
import pytest

from foretaste.data import Dataset, GenerateConfig, PrepareConfig, generate, prepare
from tests.training.trainings import NEW, items_of

SHAPE = GenerateConfig(num_users=60, num_items=40, num_interactions=900, num_genres=4)


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return generate(SHAPE).table


@pytest.fixture(scope="session")
def dataset(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Leave-one-out, with validation and test."""
    directory = tmp_path_factory.mktemp("data") / "small"
    return prepare(table, directory, PrepareConfig(protocol="leave-one-out"))


@pytest.fixture(scope="session")
def shop(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same with features, and with two items that nobody has."""
    place = tmp_path_factory.mktemp("data") / "shop"
    items = items_of(table, *NEW)
    return prepare(table, place, protocol="leave-one-out", items=items, features=["kind"])


@pytest.fixture(scope="session")
def test_only(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The reference's split: no validation."""
    directory = tmp_path_factory.mktemp("data") / "test-only"
    config = PrepareConfig(protocol="leave-one-out", validation="none")
    return prepare(table, directory, config)


@pytest.fixture(scope="session")
def heldout_users(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Whole users held out."""
    directory = tmp_path_factory.mktemp("data") / "heldout"
    config = PrepareConfig(protocol="held-out-users", num_heldout_users=10)
    return prepare(table, directory, config)


@pytest.fixture(scope="session")
def everything(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Nothing held out."""
    directory = tmp_path_factory.mktemp("data") / "everything"
    return prepare(table, directory, PrepareConfig(protocol="none"))
