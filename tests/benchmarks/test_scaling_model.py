"""Formulas of bytes and memory, held against the counters of real ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from benchmarks.scaling_model import Training, tables
from foretaste.bench import train as bench_train
from foretaste.bench.config import TrainBench
from foretaste.bench.session import Session, load_histories, shape_of
from foretaste.distributed.collectives import Ranks
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from tests.docs.pages import page
from tests.ranks import run_ranks

NEUMF = Training(
    model="neumf",
    num_users=60,
    num_items=48,
    num_interactions=600,
    batch_size=500,
    config=NeuMFConfig(factors=4, layers=(8, 8, 4)),
)
VAE = Training(
    model="vae",
    num_users=60,
    num_items=48,
    num_interactions=600,
    batch_size=20,
    config=VAEConfig(hidden=(8,), latent=4),
)
MANY_ITEMS = {"num_users": 300, "num_items": 2000, "num_interactions": 3000}
CASES = {
    "all items": NEUMF,
    "a byte for each item": replace(NEUMF, **MANY_ITEMS, batch_size=700),
    "touched items": replace(NEUMF, **MANY_ITEMS, batch_size=100),
    "data": VAE,
}


@dataclass(frozen=True)
class Counted:
    """Bytes of one rank: of its first update, before it in the epoch, at the start, and held."""

    update: int
    epoch: int
    setup: int
    state: int
    data: int
    of_epoch: int
    """Data made for each epoch: the order, and negatives."""
    held: int
    num_interactions: int
    items: set[int]
    """Items of the rank's part of the batch."""


def counted(ranks: Ranks, case: Training) -> Counted:
    options = TrainBench(
        shape=f"{case.num_users}x{case.num_items}x{case.num_interactions}", device="cpu"
    )
    session = Session("train", case.config, options, ranks=ranks)
    plan = session.plan("fp32", case.batch_size, 2)
    before = sum(ranks.num_bytes.values())
    shape = shape_of(case.num_users, case.num_items, case.num_interactions)
    training = bench_train.Training(session, load_histories(shape), plan, ranks)
    batches: Any = training.batches
    totals = [before, sum(ranks.num_bytes.values())]
    updates = []
    model = training.model.train()
    for batch in batches.epoch(0):
        totals.append(sum(ranks.num_bytes.values()))
        training.step(batch)
        training.step.finish()
        updates.append(sum(ranks.num_bytes.values()) - totals[-1])
        if len(updates) == 1:
            items = {*getattr(batch, "item_index_BK", torch.zeros(0)).flatten().tolist()}
    kept = batches.item_index_N if case.model == "neumf" else batches.histories.item_index
    num_interactions = kept.numel()
    parameters = list(model.parameters())
    moments = training.step.state_dict()
    state = sum(2 * p.nbytes for p in parameters)
    state += sum(v.nbytes for name, v in moments.items() if name.startswith("optimizer.exp_avg"))
    return Counted(
        update=updates[0],
        epoch=totals[2] - totals[1],
        setup=totals[1] - totals[0],
        state=state,
        data=sum(_tensors(batches)),
        of_epoch=(8 + 4 * 4) * num_interactions if case.model == "neumf" else 8 * case.num_users,
        held=len(model.users),
        num_interactions=num_interactions,
        items=items,
    )


def _tensors(batches: Any) -> list[int]:
    """Bytes of what batches keep, each tensor once."""
    found: dict[int, int] = {}

    def look(value: Any, depth: int = 0) -> None:
        if isinstance(value, torch.Tensor):
            found[value.data_ptr()] = value.nbytes
        elif depth < 2 and hasattr(value, "__dict__"):
            for inner in vars(value).values():
                look(inner, depth + 1)

    look(batches)
    return list(found.values())


@pytest.mark.parametrize(("name", "size"), [*dict.fromkeys(CASES, 2).items(), ("data", 4)])
def test_bytes_and_memory_are_those_of_the_formulas(name: str, size: int) -> None:
    case = CASES[name]
    found = run_ranks(counted, size, case)
    items = set.union(*(one.items for one in found))
    touched = len(items), max(len(one.items) for one in found)
    expected = case.update_bytes(touched, ranks=size)
    assert {one.update for one in found} == {expected}
    assert expected <= case.update_bytes() + 8 * size
    for one in found:
        assert one.epoch == case.epoch_bytes(size)
        assert one.setup == case.setup_bytes(size)
        assert one.state == case.state_bytes(one.held)
        kept = case.data_bytes(one.held, one.num_interactions) - one.of_epoch
        assert 0 <= one.data - kept <= 64, "an offset more, labels"


def test_the_page_has_the_tables_of_the_model() -> None:
    text = page("scaling.md").text
    assert [table for table in tables() if table not in text] == []
