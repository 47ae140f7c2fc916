"""A small generated dataset, and settings of short trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset, GenerateConfig, generate, prepare

SHAPE = GenerateConfig(num_users=80, num_items=50, num_interactions=1500, num_genres=4)


@pytest.fixture(scope="session")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow.csv as pa_csv

    path = tmp_path_factory.mktemp("raw") / "ratings.csv"
    pa_csv.write_csv(generate(SHAPE).table, path)
    return path


@pytest.fixture(scope="session")
def dataset(table_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Leave-one-out, with validation and test."""
    return prepare(table_file, tmp_path_factory.mktemp("data") / "small")
