"""Bytes that ranks send equal the numbers in docs/scaling.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretaste.distributed.collectives import Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.registry import build_model
from foretaste.models.vae.config import VAEConfig
from tests.ops.cases import random_histories
from tests.ranks import run_ranks
from tests.training.plans import make_plan

CONFIGS: dict[str, Any] = {
    "neumf": NeuMFConfig(factors=4, layers=(8, 8, 4)),
    "vae": VAEConfig(hidden=(8,), latent=4),
}
NUM_USERS, NUM_ITEMS = 40, 900


def sent(ranks: Ranks, name: str, batch_size: int) -> tuple[int, int, int, set[int]]:
    """Bytes of an epoch and of its first update, number of updates, and items of the first."""
    users = ranks.part_of(NUM_USERS) if name == "neumf" else None
    model: Any = build_model(name, CONFIGS[name], NUM_USERS, NUM_ITEMS, users)
    histories = random_histories(np.random.default_rng(5), NUM_USERS, NUM_ITEMS, share=0.05)
    histories = histories[model.users.start : model.users.stop] if users else histories
    model.count_items(histories, ranks)
    plan = make_plan(batch_size=batch_size)
    batches, step = strategy_of(ranks).batches_and_step(model.train(), histories, plan)
    before = ranks.num_bytes.total()
    batch = next(iter(batches.epoch(0)))
    made = ranks.num_bytes.total()
    step(batch)
    step.finish()
    items = set(batch.item_index_BK.flatten().tolist()) if name == "neumf" else set()
    return made - before, ranks.num_bytes.total() - made, batches.num_batches, items


@pytest.mark.parametrize("size", [2, 4])
def test_an_update_of_users_sends_the_touched_items_and_the_tower(size: int) -> None:
    found = run_ranks(sent, size, "neumf", 200)
    model = build_model("neumf", CONFIGS["neumf"], NUM_USERS, NUM_ITEMS)
    parameters = dict(model.named_parameters())
    per_item = sum(parameters[name].numel() for name in model.item_rows) // NUM_ITEMS
    rows = (*model.user_rows, *model.item_rows)
    rest = sum(p.numel() for name, p in parameters.items() if name not in rows)
    items = [items for *_, items in found]
    rows_and_numbers = 4 * per_item * len(set.union(*items)) + 4 * max(map(len, items)) + 8 * size
    for epoch, update, num_updates, _ in found:
        assert update == rows_and_numbers + 4 * rest
        assert epoch == 8 * (num_updates + size), "how many rows of each batch a rank has"


@pytest.mark.parametrize("size", [2, 4])
def test_an_update_of_data_sends_all_gradients(size: int) -> None:
    model = build_model("vae", CONFIGS["vae"], NUM_USERS, NUM_ITEMS)
    num_bytes = 4 * sum(parameter.numel() for parameter in model.parameters())
    for epoch, update, *_ in run_ranks(sent, size, "vae", 20):
        assert (epoch, update) == (0, num_bytes)
