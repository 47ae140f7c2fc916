from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset
from foretaste.runs import Run
from tests.runs.tiny import make_dataset, make_run


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture
def run(tmp_path: Path, dataset: Dataset) -> Run:
    return make_run(tmp_path / "run", dataset)
