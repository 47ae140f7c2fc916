"""Every model passes the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foretaste.data import Dataset
from foretaste.models.base import IterativeModel
from foretaste.models.registry import MODEL_NAMES, build_model, config_class
from tests.models.contract import (
    CASES,
    NUM_ITEMS,
    NUM_USERS,
    RECIPES,
    ModelContract,
    Trained,
    make_dataset,
    make_tiny_board,
    train_on_board,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("board") / "dataset")


@pytest.fixture(scope="module")
def tiny_board(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny_board(tmp_path_factory.mktemp("tiny") / "dataset")


@pytest.fixture(scope="module", params=CASES)
def trained(
    request: pytest.FixtureRequest, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    return train_on_board(request.param, dataset, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def retrained(trained: Trained, tmp_path: Path) -> Trained:
    """The same training once more."""
    return train_on_board(trained.case, trained.dataset, tmp_path / "run")


@pytest.fixture
def reseeded(trained: Trained, tmp_path: Path) -> Trained:
    """The same training with another seed."""
    return train_on_board(trained.case, trained.dataset, tmp_path / "run", seed=2)


class TestContract(ModelContract):
    pass


@pytest.mark.parametrize("name", [name for name in MODEL_NAMES if config_class(name).parallel])
def test_ranks_begin_with_their_rows_of_one_model(name: str) -> None:
    made_of = (name, RECIPES[name].model_config, NUM_USERS, NUM_ITEMS)
    whole, num_shared = build_model(*made_of), 0
    assert isinstance(whole, IterativeModel)
    whole.reset_parameters(5)
    for rank in range(3):
        starts = [0, 7, 7, NUM_USERS]
        users = range(starts[rank], starts[rank + 1]) if whole.user_rows else None
        part = build_model(*made_of, users)
        assert isinstance(part, IterativeModel)
        part.reset_parameters(5)
        for parameter_name, expected in whole.state_dict().items():
            rows = part.rows_of(parameter_name)
            if rows is not None:
                expected, num_shared = expected[rows.start : rows.stop], num_shared + 1
            assert torch.equal(part.state_dict()[parameter_name], expected)
    assert num_shared == 3 * len(whole.user_rows)
