"""The NeuMF family with its users shared out over ranks learns from the samples of one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.distributed.collectives import PendingSums, Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.neumf.fold_in import UserPrior
from foretaste.models.neumf.model import NeuMF
from foretaste.models.registry import build_model
from foretaste.ops.dropout import keep_mask
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.neumf_loss.inputs import TowerDropout, layer_keys
from tests.ops.cases import random_histories
from tests.ranks import run_ranks
from tests.training.plans import make_plan

NUM_USERS, NUM_ITEMS = 23, 31
CONFIGS: dict[str, Any] = {
    "neumf": NeuMFConfig(factors=5, layers=(8, 7, 6)),
    "gmf": GMFConfig(factors=5, loss="bce"),
    "mlp": MLPConfig(layers=(10, 8, 4)),
    "gmf by softmax": GMFConfig(factors=5),
    "neumf by softmax": NeuMFConfig(
        factors=5,
        layers=(8, 7, 6),
        loss="softmax",
        logit_adjustment=0.5,
    ),
}
BOUNDS = {
    "even": {2: [0, 12, 23], 3: [0, 8, 16, 23]},
    "one user": {2: [0, 1, 23], 3: [0, 10, 11, 23]},
    "no user": {2: [0, 0, 23], 3: [0, 12, 12, 23]},
}
FEWER = {"fewer users": {3: [0, 1, 1, 2]}}
"""Splits with fewer users than ranks."""


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
        return (BOUNDS | FEWER)[self.shares][size] if size > 1 else [0, self.num_users]


@dataclass(frozen=True)
class Update:
    """One update of one rank."""

    weights: dict[str, Tensor]
    """Weights before the update."""
    gradients: dict[str, Tensor]
    loss: Tensor
    num_samples: int
    samples: tuple[Tensor, ...]
    """Numbers of users, items, labels and weights of all samples."""
    first_row: int
    dropout: Tensor


def whole_histories(num_users: int = NUM_USERS) -> HistoryTensors:
    return random_histories(np.random.default_rng(5), num_users, NUM_ITEMS, share=0.2)


def model_of(ranks: Ranks, case: Case) -> NeuMF:
    bounds = case.bounds(ranks.size)
    users = range(bounds[ranks.rank], bounds[ranks.rank + 1]) if ranks.size > 1 else None
    config = replace(
        CONFIGS[case.name],
        negatives=4,
        batch_layout=case.layout,
        verified_negatives=case.verified,
    )
    model = build_model(case.name.split()[0], config, case.num_users, NUM_ITEMS, users)
    assert isinstance(model, NeuMF)
    model.reset_parameters(3)
    return model


def updates(
    ranks: Ranks, case: Case, weights: list[dict[str, Tensor]] | None = None
) -> list[Update]:
    """Updates of a rank, from ``weights`` at each update if they are given."""
    model = model_of(ranks, case)
    users = model.users
    histories = whole_histories(case.num_users)[users.start : users.stop]
    model.count_items(histories, ranks)
    plan = make_plan(batch_size=case.batch_size, precision=case.precision)
    batches, step = strategy_of(ranks).batches_and_step(model.train(), histories, plan)
    found = []
    last = batches.num_batches - 1
    for batch in (*islice(batches.epoch(0), 3), *batches.epoch(1, last)):
        if weights is not None:
            whole = weights[len(found)]
            own = {name: whole[name][users.start : users.stop] for name in model.user_rows}
            model.load_state_dict(whole | own)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        loss = step(batch).clone()
        step.finish()
        shape = batch.item_index_BK.shape
        dropout = TowerDropout(0.5, batch.dropout_key, batch.first_row * shape[1])
        (key,) = layer_keys(dropout, 1, model.device)
        found.append(
            Update(
                before,
                {
                    name: p.grad.clone()
                    for name, p in model.named_parameters()
                    if p.grad is not None
                },
                loss,
                batch.num_samples,
                (
                    batch.user_index_B + users.start,
                    batch.item_index_BK,
                    batch.label_BK.expand(shape),
                    batch.weight_BK.expand(shape),
                ),
                int(batch.first_row),
                keep_mask(key, shape.numel(), 9, 0.5, model.device),
            )
        )
    return found


def assert_close(found: Tensor, expected: Tensor, precision: str, name: str) -> None:
    """Check closeness in the norm, relative to the whole tensor's."""
    tolerance = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 4e-3}[precision]
    error = (found - expected).double().norm()
    assert error <= tolerance * expected.double().norm() + 1e-12, (name, error)


def check(case: Case, size: int) -> None:
    (alone,) = run_ranks(updates, 1, case)
    parts = run_ranks(updates, size, case, [each.weights for each in alone])
    rows_of = model_of(Ranks(0, size), case)
    for number, expected in enumerate(alone):
        found = [part[number] for part in parts]
        for column, tensors in zip(
            expected.samples, zip(*(update.samples for update in found), strict=True), strict=True
        ):
            assert torch.equal(torch.cat(tensors), column)
        assert torch.equal(torch.cat([update.dropout for update in found]), expected.dropout)
        assert {update.num_samples for update in found} == {expected.num_samples}
        num_rows = [0, *np.cumsum([len(update.samples[0]) for update in found])]
        assert [update.first_row for update in found] == num_rows[:-1]
        loss = torch.stack([update.loss for update in found]).sum()
        assert_close(loss, expected.loss, case.precision, "loss")
        for name, gradient in expected.gradients.items():
            pieces = [update.gradients[name] for update in found]
            if rows_of.rows_of(name) is None:
                assert all(torch.equal(piece, pieces[0]) for piece in pieces)
                pieces = pieces[:1]
            assert_close(torch.cat(pieces), gradient, case.precision, name)


@pytest.mark.parametrize(
    ("size", "shares", "layout", "batch_size"),
    [
        (2, "even", "grouped", 30),
        (3, "one user", "grouped", 300),
        (2, "no user", "shuffled", 300),
        (3, "no user", "shuffled", 30),
    ],
)
def test_updates_equal_one_process(size: int, shares: str, layout: str, batch_size: int) -> None:
    check(Case(shares=shares, layout=layout, batch_size=batch_size), size)


OTHERS = [
    Case(precision="bf16", batch_size=30),
    Case(name="mlp", precision="fp16"),
    Case(name="gmf", batch_size=1),
    *(Case(name=name, batch_size=30) for name in CONFIGS if " " in name),
    Case(verified=False, layout="shuffled", shares="no user"),
]


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_updates_equal_one_process_for_every_model_and_precision(case: Case) -> None:
    check(case, 2)


def test_fewer_users_than_ranks() -> None:
    check(Case(shares="fewer users", num_users=2), 3)


def prior(ranks: Ranks, case: Case) -> list[Tensor]:
    model = model_of(ranks, case).eval()
    prior = UserPrior.of(model._user_tables(), case.num_users, parts=ranks)
    return [*prior.means, *prior.deviations]


@pytest.mark.parametrize("shares", BOUNDS)
def test_new_users_have_the_same_prior(shares: str) -> None:
    case = Case(shares=shares)
    (alone,) = run_ranks(prior, 1, case)
    for found in (*run_ranks(prior, 2, case), *run_ranks(prior, 3, case)):
        for one, expected in zip(found, alone, strict=True):
            assert torch.equal(one.nan_to_num(), expected.nan_to_num())


def test_the_prior_is_the_mean_and_deviation_of_the_rows() -> None:
    for table in (torch.randn(100, 7), 1e-8 * torch.randn(5, 3), 1e6 + torch.randn(1, 2)):
        found = UserPrior.of([table])
        mean = table.mean(0, keepdim=True)
        torch.testing.assert_close(found.means[0], mean)
        deviation = (table - mean).square().mean().sqrt().clamp(min=1e-6)
        torch.testing.assert_close(found.deviations[0], deviation)


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


def overflowing(ranks: Ranks) -> tuple[float, bool]:
    """Make an update whose gradients are infinite for the last rank's users alone."""
    model = model_of(ranks, Case())
    users = model.users
    plan = make_plan(batch_size=300, precision="fp16")
    histories = whole_histories()[users.start : users.stop]
    batches, step = strategy_of(ranks).batches_and_step(model.train(), histories, plan)
    if ranks.rank == ranks.size - 1:
        with torch.no_grad():
            model.user_factors.fill_(1e38)
    before = [parameter.clone() for parameter in model.parameters()]
    step(next(iter(batches.epoch(0))))
    step.finish()
    is_kept = all(map(torch.equal, before, model.parameters()))
    return step.scaler.as_event()["num_skipped_steps"], is_kept


def test_a_step_that_overflows_on_one_rank_is_skipped_on_all() -> None:
    assert run_ranks(overflowing, 2) == [(1, True)] * 2


def measured(ranks: Ranks, case: Case) -> tuple[list[str], list[int], int]:
    """The events in order, the bytes that each update communicates, and the bytes of user tables.

    User tables are the rows, their gradients and Adam's moments.
    """
    model = model_of(ranks, case)
    users = model.users
    plan = make_plan(batch_size=case.batch_size, precision=case.precision)
    histories = whole_histories()[users.start : users.stop]
    batches, step = strategy_of(ranks).batches_and_step(model.train(), histories, plan)
    wait, events, num_bytes = PendingSums.wait, [], []

    def noted(pending: PendingSums) -> None:
        events.append("wait")
        wait(pending)

    with mock.patch.object(PendingSums, "wait", noted):
        for batch in islice(batches.epoch(0), 3):
            events.append("batch")
            before = ranks.num_bytes.total()
            step(batch)
            num_bytes.append(ranks.num_bytes.total() - before)
    step.finish()
    tables = [model.get_parameter(name) for name in model.user_rows]
    (own,) = (one.optimizer for one in step.optimizers if one.is_sharded)
    state = [own.state[table] for table in tables]
    kept = [*tables, *(table.grad for table in tables)]
    kept += [each[kind] for each in state for kind in ("exp_avg", "exp_avg_sq")]
    return events, num_bytes, sum(tensor.nbytes for tensor in kept if tensor is not None)


def test_the_next_batch_is_made_while_gradients_are_summed() -> None:
    for precision, expected in (
        ("fp32", ["batch", "batch", "wait", "batch", "wait", "wait"]),
        ("fp16", ["batch", "wait"] * 3),  # their overflow is checked at once
    ):
        for events, _, _ in run_ranks(measured, 2, Case(precision=precision)):
            assert events == expected


def test_an_update_communicates_the_items_and_the_tower() -> None:
    """Only the touched items are communicated if that is less; their flags take a byte per item
    here."""
    model = model_of(Ranks(), Case())
    num_items = sum(model.get_parameter(name).numel() for name in model.item_rows)
    num_users = sum(model.get_parameter(name).numel() for name in model.user_rows)
    others = 4 * (sum(p.numel() for p in model.parameters()) - num_items - num_users)
    found = run_ranks(measured, 2, Case())
    assert [num_bytes for _, num_bytes, _ in found] == [[others + 4 * num_items] * 3] * 2
    (alone,) = run_ranks(updates, 1, Case(batch_size=10))
    found = run_ranks(measured, 2, Case(batch_size=10))
    touched = [len(update.samples[1].unique()) for update in alone[:3]]
    expected = [others + NUM_ITEMS + 4 * count * num_items // NUM_ITEMS for count in touched]
    assert [num_bytes for _, num_bytes, _ in found] == [expected] * 2
    assert sum(num_bytes for _, _, num_bytes in found) == 4 * 4 * num_users
