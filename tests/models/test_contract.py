"""Every model passes the contract."""

from __future__ import annotations

import pytest
import torch

from foretaste.models.base import IterativeModel
from foretaste.models.registry import MODEL_NAMES, build_model, config_class
from foretaste.testing import NUM_ITEMS, NUM_USERS, ModelContract
from tests.models.recipes import RECIPES


class TestContract(ModelContract):
    recipes = tuple(RECIPES.values())


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
