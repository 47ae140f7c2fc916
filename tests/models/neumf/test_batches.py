"""Batches: everything once per epoch, fresh negatives, weights that make a mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from foretaste.models.neumf.batches import InteractionBatch, InteractionBatches
from foretaste.models.neumf.config import MLPConfig
from foretaste.models.parts import Shards
from foretaste.models.vae.batches import HistoryBatches
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import Permutation, Purpose, stream_key
from tests.ops.cases import random_histories

NUM_USERS, NUM_ITEMS = 23, 31
LAYOUTS = ["grouped", "shuffled"]

Sample = tuple[int, int, float]


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    """The first user has no item, the last user has every item."""
    return random_histories(rng, NUM_USERS, NUM_ITEMS)


@pytest.fixture
def ordinary(rng: np.random.Generator) -> HistoryTensors:
    """Histories in which nobody has every item."""
    return random_histories(rng, NUM_USERS, NUM_ITEMS)[: NUM_USERS - 1]


def interaction_batches(
    histories: HistoryTensors,
    batch_size: int = 40,
    *,
    seed: int = 3,
    layout: str = "grouped",
    **sampling: Any,
) -> InteractionBatches:
    settings = {"negatives": 4, "batch_layout": layout, **sampling}
    config = MLPConfig(**settings)
    return InteractionBatches(histories, config, batch_size, seed)


def samples_of(batch: InteractionBatch) -> list[tuple[Sample, float]]:
    """(user, item, label) and weight of each sample."""
    shape = batch.item_index_BK.shape
    columns = (
        batch.user_index_B[:, None].expand(shape),
        batch.item_index_BK,
        batch.label_BK.expand(shape),
        batch.weight_BK.expand(shape),
    )
    rows = zip(*(column.reshape(-1).tolist() for column in columns), strict=True)
    return [((user, item, label), weight) for user, item, label, weight in rows]


def epoch_samples(batches: InteractionBatches, epoch: int) -> Counter[Sample]:
    return Counter(sample for batch in batches.epoch(epoch) for sample, _ in samples_of(batch))


def pairs_of(histories: HistoryTensors) -> Counter[Sample]:
    users, items = histories.row_index().tolist(), histories.item_index.tolist()
    return Counter((user, item, 1.0) for user, item in zip(users, items, strict=True))


def positives(samples: Counter[Sample]) -> Counter[Sample]:
    return Counter({sample: count for sample, count in samples.items() if sample[2] == 1.0})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch_size", [1, 64, 10**9])
def test_every_interaction_once_per_epoch_with_its_negatives(
    histories: HistoryTensors, layout: str, batch_size: int
) -> None:
    batches = interaction_batches(histories, batch_size, layout=layout, negatives=4)
    for epoch in (0, 1):
        samples = epoch_samples(batches, epoch)
        sizes = [batch.num_samples for batch in batches.epoch(epoch)]
        assert positives(samples) == pairs_of(histories)
        assert sum(sizes) == batches.num_samples
        assert len(set(sizes[:-1])) <= 1
        assert len(sizes) == batches.num_batches
        assert samples.total() == batches.num_samples == 5 * histories.item_index.numel()
        per_user = Counter(user for user, _, label in samples.elements() if label == 0.0)
        assert per_user == Counter(
            {user: 4 * n for user, n in enumerate(histories.lengths().tolist()) if n}
        )


def test_grouped_and_shuffled_hold_the_same_samples(histories: HistoryTensors) -> None:
    grouped, shuffled = (interaction_batches(histories, layout=layout) for layout in LAYOUTS)
    for epoch in range(3):
        assert epoch_samples(grouped, epoch) == epoch_samples(shuffled, epoch)


def test_shuffled_samples_of_an_interaction_part(ordinary: HistoryTensors) -> None:
    """A batch of a tenth of the samples holds about a tenth of the positives."""
    batches = interaction_batches(ordinary, 100, layout="shuffled")
    shares = [batch.label_BK.mean().item() for batch in batches.epoch(0)]
    assert min(shares[:-1]) > 0.0
    assert max(shares[:-1]) < 0.5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_negatives_of_users_with_everything_weigh_nothing(
    histories: HistoryTensors, layout: str
) -> None:
    found_some = False
    for batch in interaction_batches(histories, layout=layout).epoch(0):
        for (user, _, label), weight in samples_of(batch):
            counts = label == 1.0 or user != NUM_USERS - 1
            assert weight == pytest.approx(counts / batch.num_samples)
            found_some |= not counts
    assert found_some


@pytest.mark.parametrize("layout", LAYOUTS)
def test_negatives_and_order_are_fresh_in_every_epoch(
    ordinary: HistoryTensors, layout: str
) -> None:
    batches = interaction_batches(ordinary, layout=layout)
    one, other = epoch_samples(batches, 0), epoch_samples(batches, 1)
    assert positives(one) == positives(other)
    assert one != other
    first_users = [next(iter(batches.epoch(epoch))).user_index_B.tolist() for epoch in (0, 1)]
    assert first_users[0] != first_users[1]


def test_unverified_negatives_may_be_positives(histories: HistoryTensors) -> None:
    owned = histories.to_dense().bool()
    batches = interaction_batches(histories, verified_negatives=False)
    rows = [
        owned[batch.user_index_B[:, None].long(), batch.item_index_BK[:, 1:].long()]
        for batch in batches.epoch(0)
    ]
    assert torch.cat(rows).any()
    assert sum(weight for _, weight in samples_of(next(iter(batches.epoch(0))))) == pytest.approx(1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_seed_decides_everything(histories: HistoryTensors, layout: str) -> None:
    def epoch(seed: int) -> list[tuple[list[tuple[Sample, float]], int]]:
        batches = interaction_batches(histories, seed=seed, layout=layout)
        return [(samples_of(batch), batch.dropout_key.item()) for batch in batches.epoch(1)]

    assert epoch(3) == epoch(3)
    assert epoch(3) != epoch(4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("at_once", [130, 1 << 14])
def test_small_batches_drawn_together_are_those_drawn_alone(
    histories: HistoryTensors, layout: str, at_once: int, limit: Callable[..., None]
) -> None:
    limit(drawn_samples=at_once)
    together = list(interaction_batches(histories, layout=layout).epoch(1, 2))
    limit(drawn_samples=0)
    alone = list(interaction_batches(histories, layout=layout).epoch(1, 2))
    assert len(together) == len(alone) > 3
    for ours, theirs in zip(together, alone, strict=True):
        assert samples_of(ours) == samples_of(theirs)
        assert ours.first_row == theirs.first_row
        assert ours.dropout_key == theirs.dropout_key


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_epochs_order_decides_the_batch_of_a_row_and_rows_ascend_in_it(
    ordinary: HistoryTensors, layout: str
) -> None:
    batches = interaction_batches(ordinary, 40, seed=8, layout=layout, negatives=4)
    key = stream_key(8, Purpose.SHUFFLE, 2)
    order = Permutation.keyed(key, batches.num_rows, "cpu").values()
    user_N, item_N = ordinary.row_index().int(), ordinary.item_index
    rows_per_batch, per_row = (8, 1) if layout == "grouped" else (40, 5)
    for rows, batch in zip(torch.split(order, rows_per_batch), batches.epoch(2), strict=True):
        row_B = rows.sort().values
        assert torch.equal(batch.user_index_B, user_N[row_B // per_row])
        is_positive_B = row_B % per_row == 0
        found = batch.item_index_BK[is_positive_B, 0]
        assert torch.equal(found, item_N[row_B[is_positive_B] // per_row])


def in_parts(
    histories: HistoryTensors, bounds: list[int], batch_size: int, layout: str
) -> list[list[InteractionBatch]]:
    """The batches of an epoch for each part of the users."""
    seen: dict[torch.Size, torch.Tensor] = {}

    class InTurn(Shards):
        """Shards that run one after another: each knows the values of earlier shards."""

        def total(self, tensor: torch.Tensor) -> torch.Tensor:
            return torch.tensor(histories.item_index.numel())

        def prefix_sum(self, tensor: torch.Tensor) -> torch.Tensor:
            before = seen.get(tensor.shape, torch.zeros_like(tensor))
            seen[tensor.shape] = before + tensor
            return before

    config = MLPConfig(negatives=4, batch_layout=layout)  # type: ignore[arg-type]
    return [
        list(
            InteractionBatches(
                histories[start:stop], config, batch_size, seed=3, parts=InTurn()
            ).epoch(1)
        )
        for start, stop in pairwise(bounds)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("batch_size", "bounds"), [(7, [0, 9, 23]), (64, [0, 1, 2, 22, 23]), (10**9, [0, 23, 23])]
)
def test_parts_of_the_users_have_the_slices_of_every_batch(
    histories: HistoryTensors,
    layout: str,
    batch_size: int,
    bounds: list[int],
    limit: Callable[..., None],
) -> None:
    """Parts include one user without interactions, one user with every item, and nobody."""
    whole = list(interaction_batches(histories, batch_size, layout=layout).epoch(1))
    limit(positions=50)
    parts = in_parts(histories, bounds, batch_size, layout)
    for batch, *those in zip(whole, *parts, strict=True):
        start, samples = 0, []
        for first_user, part in zip(bounds, those, strict=False):
            stop = start + len(part.user_index_B)
            samples += samples_of(replace(part, user_index_B=part.user_index_B + first_user))
            assert (part.num_samples, part.first_row.item()) == (batch.num_samples, start)
            assert torch.equal(part.dropout_key, batch.dropout_key)
            start = stop
        assert samples == samples_of(batch)


@pytest.mark.parametrize("batch_size", [7, 10**9])
def test_every_user_once_per_epoch(histories: HistoryTensors, batch_size: int) -> None:
    batches = HistoryBatches(histories, batch_size, seed=3)
    expected = sorted(tuple(row.nonzero().flatten().tolist()) for row in histories.to_dense())
    for epoch in (0, 1):
        found = list(batches.epoch(epoch))
        rows = [row for batch in found for row in batch.histories.to_dense()]
        assert sorted(tuple(row.nonzero().flatten().tolist()) for row in rows) == expected
        assert len(found) == batches.num_batches
        assert sum(batch.num_samples for batch in found) == batches.num_samples == NUM_USERS
        assert all(batch.num_samples == batch_size for batch in found[:-1])


def test_updates_of_histories_are_numbered_across_epochs(histories: HistoryTensors) -> None:
    batches = HistoryBatches(histories, 7, seed=3)
    found = [batch for epoch in range(3) for batch in batches.epoch(epoch)]
    assert [batch.update.item() for batch in found] == list(range(3 * batches.num_batches))
    keys = [key.item() for batch in found for key in (batch.dropout_key, batch.noise_key)]
    assert len(set(keys)) == 2 * len(found)


def test_histories_are_shuffled_by_seed_and_epoch(histories: HistoryTensors) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        batches = HistoryBatches(histories, 7, seed).epoch(epoch)
        return [batch.histories.item_index.tolist() for batch in batches]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(2, 0)
    assert order(1, 0) != order(1, 1)


@pytest.mark.parametrize("kind", [*LAYOUTS, "histories"])
@pytest.mark.parametrize("first_batch", [0, 3, -1])
def test_an_epoch_may_begin_at_any_batch(
    kind: str, first_batch: int, histories: HistoryTensors
) -> None:
    batches: InteractionBatches | HistoryBatches
    if kind == "histories":
        batches = HistoryBatches(histories, 4, seed=3)
    else:
        batches = interaction_batches(histories, layout=kind)
    first_batch %= batches.num_batches + 1
    whole, rest = list(batches.epoch(5)), list(batches.epoch(5, first_batch))
    assert len(whole) == batches.num_batches == first_batch + len(rest)
    for one, other in zip(whole[first_batch:], rest, strict=True):
        pairs = zip(one.tensors(), other.tensors(), strict=True)
        assert all(torch.equal(expected, found) for expected, found in pairs)
