"""Feature values in SASRec: an item's vector is its own part plus the mean of its values'
vectors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foretaste.models.sasrec.batches import StepBatch
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.models.sasrec.model import SASRec
from foretaste.ops.histories import HistoryTensors
from tests.models.sasrec.plain import loss_of
from tests.models.sasrec.sequences import NUM_ITEMS, in_order, random_sequences

NUM_LISTED = NUM_ITEMS + 3
VALUES: list[list[int]] = [
    [0, 1, 2, NUM_ITEMS],
    [*range(5, 30, 3), NUM_ITEMS, NUM_ITEMS + 1],
    [7, 8],
    [NUM_ITEMS + 1, NUM_ITEMS + 2],
]
"""The items of each value: nobody has the last three items, and they alone have the last value."""

SEQUENCES = [*random_sequences(30), [NUM_ITEMS - 1, 3]]


def features() -> HistoryTensors:
    offsets = torch.tensor([0, *(len(row) for row in VALUES)]).cumsum(0)
    items = torch.tensor([item for row in VALUES for item in row], dtype=torch.int32)
    return HistoryTensors(offsets, items, NUM_LISTED)


def model_of(weight: float = 0.7, **settings: int) -> SASRec:
    config = SASRecConfig(factors=12, heads=3, max_length=9, feature_weight=weight, **settings)
    model = SASRec(config, len(SEQUENCES), NUM_LISTED)
    model.count_items(in_order(SEQUENCES, NUM_LISTED))
    model.take_features(features())
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


def whole_batch(model: SASRec) -> StepBatch:
    histories = in_order(SEQUENCES, NUM_LISTED)
    (batch,) = model.make_batches(histories, batch_size=1 << 20, seed=2).epoch(4)
    return batch


def vectors_of(model: SASRec) -> Tensor:
    """The vector of each item, item by item."""
    weights = dict(model.named_parameters())
    rows = []
    for item in range(NUM_LISTED):
        values = [value for value, items in enumerate(VALUES) if item in items]
        row = weights["item_table"][item]
        if values:
            row = row + model.config.feature_weight * weights["values.value_table"][values].mean(0)
        rows.append(row)
    return torch.stack(rows)


def test_loss_and_gradients_equal_plain_pytorch() -> None:
    """The softmax is over the items of training; new items are none of its wrong answers."""
    model = model_of().double().eval()
    batch = whole_batch(model)
    expected = loss_of(model, batch, table_ID=vectors_of(model)[:NUM_ITEMS])
    truth = torch.autograd.grad(expected, list(model.parameters()))
    loss = model(batch)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=0.0)
    found = torch.autograd.grad(loss, list(model.parameters()))
    for (name, _), gradient, true in zip(model.named_parameters(), found, truth, strict=True):
        torch.testing.assert_close(gradient, true, rtol=1e-7, atol=1e-9, msg=name)
    gradients = dict(zip(dict(model.named_parameters()), found, strict=True))
    assert not gradients["item_table"][NUM_ITEMS:].any()
    assert not gradients["values.value_table"][-1].any()


@pytest.mark.parametrize("sampled_softmax", [1, 5, 1000])
def test_no_new_item_is_sampled(sampled_softmax: int) -> None:
    model = model_of(sampled_softmax=sampled_softmax).train()
    for batch in model.make_batches(in_order(SEQUENCES, NUM_LISTED), batch_size=9, seed=1).epoch(0):
        model.zero_grad()
        model(batch).backward()
        assert model.item_table.grad is not None
        assert model.item_table.grad.any()
        assert not model.item_table.grad[NUM_ITEMS:].any()


def test_new_items_are_read_and_scored_by_their_values() -> None:
    model = model_of().eval()
    with torch.no_grad():
        vectors_ID = vectors_of(model)
    is_new_I = model.item_count_I == 0
    assert is_new_I[NUM_ITEMS:].all()
    vectors_ID[is_new_I] *= 1.5
    torch.testing.assert_close(model.item_vectors(), vectors_ID)
    histories = in_order([[4, NUM_ITEMS], [4]], NUM_LISTED)
    scores_BI = model.score_catalogue(model.fold_in(histories))
    plain = SASRec(model.config.without_features(), len(SEQUENCES), NUM_LISTED)
    plain.load_state_dict(model.state_dict(), strict=False)
    plain.item_table.data.copy_(vectors_ID)
    plain.eval()
    expected_BI = plain.score_catalogue(plain.fold_in(histories))
    torch.testing.assert_close(scores_BI, expected_BI, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(scores_BI[0], scores_BI[1])


def test_answers_follow_the_weights() -> None:
    model = model_of().eval()
    before = model.item_vectors().clone()
    state = {name: 2 * tensor for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    torch.testing.assert_close(model.item_vectors(), 2 * before)


def test_an_own_part_begins_at_zero() -> None:
    """New items, whose own part never learns, therefore start like all others."""
    model = model_of()
    model.reset_parameters(3)
    assert not model.item_table.any()
    assert model.values is not None
    assert 0.015 < model.values.value_table.std().item() < 0.025


def test_a_program_has_the_sums_of_own_parts_and_values() -> None:
    """The program computes no mean of values for a request."""
    model = model_of().eval()
    scorer = model.scorer(known_users=False)
    expected_BI = model.score_catalogue(model.fold_in(in_order([[4, NUM_ITEMS]], NUM_LISTED)))
    assert model.values is not None
    model.values.value_table.data.zero_()
    pads = [0] * (int(model.longest_row) - 2)
    scores_BI = scorer(torch.tensor([[4, NUM_ITEMS, *pads]]), torch.tensor([2]))
    torch.testing.assert_close(scores_BI, expected_BI, rtol=1e-5, atol=1e-5)
