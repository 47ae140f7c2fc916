"""The NeuMF family with its users shared out over ranks: what one process learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.neumf.fold_in import UserPrior
from foretaste.models.neumf.model import NeuMF
from foretaste.models.registry import build_model
from foretaste.models.share import Share
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.ranks import Ranks
from tests.ops.cases import random_histories
from tests.ranks import run_ranks

NUM_USERS, NUM_ITEMS = 23, 31
CONFIGS: dict[str, Any] = {
    "neumf": NeuMFConfig(factors=5, layers=(8, 7, 6)),
    "gmf": GMFConfig(factors=5),
    "mlp": MLPConfig(layers=(10, 8, 4)),
}
BOUNDS = {
    "even": {2: [0, 12, 23], 3: [0, 8, 16, 23]},
    "one user": {2: [0, 1, 23], 3: [0, 10, 11, 23]},
    "no user": {2: [0, 0, 23], 3: [0, 12, 12, 23]},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """The first updates of one epoch and the last of the next."""

    name: str = "neumf"
    shares: str = "even"
    layout: str = "grouped"
    precision: str = "fp32"
    batch_size: int = 300
    verified: bool = True
    num_users: int = NUM_USERS

    def bounds(self, size: int) -> list[int]:
        if size == 1:
            return [0, self.num_users]
        return [min(bound, self.num_users) for bound in BOUNDS[self.shares][size]]


def whole_histories(num_users: int = NUM_USERS) -> HistoryTensors:
    return random_histories(np.random.default_rng(5), num_users, NUM_ITEMS, share=0.2)


def model_of(ranks: Ranks, case: Case) -> NeuMF:
    share = Share.of_users(case.num_users, NUM_ITEMS, ranks, case.bounds(ranks.size))
    model = build_model(case.name, CONFIGS[case.name], case.num_users, NUM_ITEMS, share)
    assert isinstance(model, NeuMF)
    model.reset_parameters(3)
    return model


def prior(ranks: Ranks, case: Case) -> list[Tensor]:
    model = model_of(ranks, case).eval()
    prior = model._user_prior if ranks.size > 1 else UserPrior.of(model._user_tables())
    assert prior is not None
    return [*prior.means, *prior.variances]


@pytest.mark.parametrize("shares", BOUNDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_new_users_have_the_same_prior(name: str, shares: str) -> None:
    case = Case(name=name, shares=shares)
    (alone,) = run_ranks(prior, 1, case)
    for found in (*run_ranks(prior, 2, case), *run_ranks(prior, 3, case)):
        for one, expected in zip(found, alone, strict=True):
            assert torch.equal(one.nan_to_num(), expected.nan_to_num())


def test_the_prior_is_the_mean_and_variance_of_the_rows() -> None:
    for table in (torch.randn(100, 7), 1e-8 * torch.randn(5, 3), 1e6 + torch.randn(1, 2)):
        found = UserPrior.of([table])
        mean = table.mean(0, keepdim=True)
        torch.testing.assert_close(found.means[0], mean)
        variance = (table - mean).square().mean().clamp(min=1e-12)
        torch.testing.assert_close(found.variances[0], variance)


def known_users(ranks: Ranks, case: Case, users: list[int]) -> list[Tensor]:
    model = model_of(ranks, case).eval()
    user_B = torch.tensor(users)
    state = model.user_state(user_B, whole_histories().rows(user_B))
    return [part for part in state.parts if isinstance(part, Tensor)]


@pytest.mark.parametrize("shares", BOUNDS)
def test_each_known_user_is_known_to_one_rank(shares: str) -> None:
    users = [22, 3, 0, 11, 12, 3]
    (alone,) = run_ranks(known_users, 1, Case(), users)
    for size in (2, 3):
        case = Case(shares=shares)
        bounds = case.bounds(size)
        for rank, found in enumerate(run_ranks(known_users, size, case, users)):
            is_here = [bounds[rank] <= user < bounds[rank + 1] for user in users]
            for one, expected in zip(found, alone, strict=True):
                assert torch.equal(one, expected * torch.tensor(is_here)[:, None])
