"""Batches of histories padded to one size; the other test_batches has the rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretaste.models.vae.batches import HistoryBatches
from foretaste.ops.histories import HistoryTensors
from tests.ops.cases import histories_of, random_histories


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    return random_histories(rng, 230, 40)


def test_full_batches_have_one_size_and_padding_changes_nothing_else(
    histories: HistoryTensors,
) -> None:
    padded = list(HistoryBatches(histories, 50, seed=3, padded=True).epoch(2))
    plain = list(HistoryBatches(histories, 50, seed=3).epoch(2))
    sizes = {batch.histories.item_index.numel() for batch in padded[:-1]}
    assert len(sizes) == 1
    for one, other in zip(padded, plain, strict=True):
        num_entries = int(one.histories.offsets[-1])
        assert torch.equal(one.histories.offsets, other.histories.offsets)
        assert torch.equal(one.histories.item_index[:num_entries], other.histories.item_index)
        assert one.histories.item_index[num_entries:].eq(0).all()
    assert padded[-1].histories.item_index.numel() == int(padded[-1].histories.offsets[-1])


def test_a_batch_larger_than_its_buffer_stays_whole() -> None:
    """One user in a thousand has every item: batches of one user cannot foresee that size."""
    histories = histories_of([range(4000), *([{1}] * 999)], 4000)
    batches = HistoryBatches(histories, 1, seed=1, padded=True)
    sizes = {batch.histories.item_index.numel() for batch in batches.epoch(0)}
    assert len(sizes) == 2
    assert max(sizes) == 4000


def test_updates_know_their_epoch(histories: HistoryTensors) -> None:
    batches = HistoryBatches(histories, 50, seed=3)
    (first, *_) = batches.epoch(7)
    assert first.updates_per_epoch == batches.num_batches == 5
    assert first.update / first.updates_per_epoch == 7.0
