"""SASRec: its computation, its learning, and that no step reads later places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from foretaste.errors import SettingError, TrainingError
from foretaste.models.sasrec import model as module
from foretaste.models.sasrec.batches import StepBatch
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.models.sasrec.model import SASRec
from tests.messages import raises
from tests.models.sasrec.plain import hidden_of, loss_of
from tests.models.sasrec.sequences import NUM_ITEMS, in_order, random_sequences

CONFIG = SASRecConfig(factors=12, heads=3, max_length=9, dropout=0.3)
SEQUENCES = random_sequences(30)


def model_of(config: SASRecConfig = CONFIG, num_items: int = NUM_ITEMS, seed: int = 5) -> SASRec:
    """A model whose weights are far from their small start, and whose places are all trained."""
    model = SASRec(config, 30, num_items)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    model.count_items(in_order([range(20)], num_items))
    return model.eval()


def whole_batch(model: SASRec) -> StepBatch:
    (batch,) = model.make_batches(in_order(SEQUENCES), batch_size=1 << 20, seed=2).epoch(4)
    return batch


def states_of(model: SASRec, sequences: list[list[int]]) -> Tensor:
    (state_BD,) = model.fold_in(in_order(sequences, model.num_items)).parts
    assert isinstance(state_BD, Tensor)
    return state_BD


def seen_steps(model: SASRec) -> list[Tensor]:
    """The vectors [S, D] of the steps of each call, once it has been made."""
    seen: list[Tensor] = []
    model.last_norm.register_forward_hook(lambda *call: seen.append(call[2]))
    return seen


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_loss_and_gradients_equal_plain_pytorch(training: bool, heads: int) -> None:
    """Look-up and scores share a table, so their gradients add up."""
    model = model_of(replace(CONFIG, heads=heads)).double().train(training)
    batch = whole_batch(model)
    expected = loss_of(model, batch, CONFIG.dropout if training else 0.0)
    truth = torch.autograd.grad(expected, list(model.parameters()))
    loss = model(batch)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=0.0)
    found = torch.autograd.grad(loss, list(model.parameters()))
    for (name, _), gradient, true in zip(model.named_parameters(), found, truth, strict=True):
        torch.testing.assert_close(gradient, true, rtol=1e-7, atol=1e-9, msg=name)


def test_states_equal_plain_pytorch() -> None:
    model = model_of().double()
    states_BD = states_of(model, SEQUENCES)
    for row, state_D in zip(SEQUENCES, states_BD, strict=True):
        if row:
            newest = row[-CONFIG.max_length :]
            torch.testing.assert_close(state_D, hidden_of(model, newest)[-1], rtol=1e-7, atol=1e-9)


def test_training_and_answers_read_the_same_places() -> None:
    """A step's output at a place equals the answer to a history that ends there."""
    model = model_of()
    seen = seen_steps(model)
    batch = whole_batch(model)
    model(batch)
    width, last_S = batch.item_index_RW.shape[1], batch.step_index_S
    histories = [
        batch.item_index_RW[step // width, : step % width + 1].tolist() for step in last_S.tolist()
    ]
    torch.testing.assert_close(states_of(model, histories), seen[0], rtol=1e-5, atol=1e-5)


def test_nothing_later_is_read() -> None:
    """Earlier steps keep their bytes if later places have other items."""
    model = model_of()
    seen = seen_steps(model)
    batch = whole_batch(model)
    model(batch)
    width = batch.item_index_RW.shape[1]
    for place in range(1, width):
        changed_RW = batch.item_index_RW.clone()
        changed_RW[:, place:] = (changed_RW[:, place:] + 7) % NUM_ITEMS
        model(replace(batch, item_index_RW=changed_RW))
        is_earlier_S = batch.step_index_S % width < place
        assert torch.equal(seen[-1][is_earlier_S], seen[0][is_earlier_S])
        assert not torch.equal(seen[-1], seen[0])


def padded(batch: StepBatch, by: int) -> StepBatch:
    """The batch with more pads behind each row; the pads hold another item."""
    num_rows, width = batch.item_index_RW.shape
    pads = torch.full((num_rows, by), 3)
    row_S, place_S = batch.step_index_S // width, batch.step_index_S % width
    return replace(
        batch,
        item_index_RW=torch.cat((batch.item_index_RW, pads), dim=1),
        step_index_S=row_S * (width + by) + place_S,
    )


def test_pads_change_no_loss_mask_or_gradient() -> None:
    model = model_of(replace(CONFIG, max_length=16)).train()
    (batch,) = model.make_batches(in_order(SEQUENCES), batch_size=1 << 20, seed=2).epoch(0)
    found = []
    for one in (batch, padded(batch, 1), padded(batch, 4)):
        model.zero_grad()
        loss = model(one)
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append((loss.detach(), gradients))
    (loss, truth), *others = found
    for other, gradients in others:
        torch.testing.assert_close(other, loss, rtol=1e-6, atol=0.0)
        for gradient, true in zip(gradients, truth, strict=True):
            assert gradient is not None
            assert true is not None
            assert (gradient - true).norm() <= 1e-5 * true.norm()


def test_pieces_and_lengths_change_no_answer(limit: Callable[..., None]) -> None:
    model = model_of()
    expected_BD = states_of(model, SEQUENCES)
    alone_BD = torch.cat([states_of(model, [row]) for row in SEQUENCES])
    torch.testing.assert_close(alone_BD, expected_BD, rtol=1e-6, atol=1e-6)
    limit(places=20)
    torch.testing.assert_close(states_of(model, SEQUENCES), expected_BD, rtol=1e-6, atol=1e-6)


def test_no_answer_reads_a_place_that_training_did_not() -> None:
    model = model_of()
    model.count_items(in_order([range(6), [1, 2]]))  # five places were read
    assert int(model.longest_row) == 5
    long = list(range(12))
    assert torch.equal(states_of(model, [long]), states_of(model, [long[-5:]]))
    assert not torch.equal(states_of(model, [long]), states_of(model, [long[-4:]]))


@pytest.mark.parametrize("width", [1, 2, 7])
def test_both_forms_of_attention_agree(width: int) -> None:
    """CUDA trains with the plain form."""
    generator = torch.Generator().manual_seed(1)
    inputs = [
        torch.randn(5, 3, width, 4, dtype=torch.float64, generator=generator).requires_grad_()
        for _ in range(3)
    ]
    found = []
    for form in (module.causal_attention, module.plain_causal_attention):
        attended = form(*inputs)
        found.append([attended, *torch.autograd.grad(attended.square().sum(), inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_unusual_histories_are_answered() -> None:
    model = model_of()
    unseen = [NUM_ITEMS - 1]
    sequences = [[4], list(range(NUM_ITEMS)), unseen, [3, *unseen, 5], []]
    state = model.fold_in(in_order(sequences))
    scores_BI = model.score_catalogue(state)
    assert scores_BI.isfinite().all()
    assert state.has_history_B.tolist() == [True, True, True, True, False]
    many = model_of(num_items=20_000)
    history = in_order([list(range(20_000))], 20_000)
    newest = in_order([list(range(20_000 - CONFIG.max_length, 20_000))], 20_000)
    expected_BI = many.score_catalogue(many.fold_in(newest))
    assert torch.equal(many.score_catalogue(many.fold_in(history)), expected_BI)


def test_nothing_is_dropped_in_answers() -> None:
    model = model_of()
    expected_BD = states_of(model, SEQUENCES)
    model.train()
    assert torch.equal(states_of(model, SEQUENCES), expected_BD)


def test_the_order_alone_tells_the_next_item() -> None:
    """c follows a, b; d follows b, a."""
    pairs = [(4 * number, 4 * number + 1) for number in range(5)]
    sequences = [[a, b, a + 2] for a, b in pairs] + [[b, a, a + 3] for a, b in pairs]
    histories = in_order(4 * sequences)
    model = SASRec(SASRecConfig(factors=16, dropout=0.1), len(histories), NUM_ITEMS)
    model.count_items(histories)
    model.reset_parameters(1)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(60):
        for batch in model.make_batches(histories, batch_size=40, seed=1).epoch(epoch):
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
    model.eval()
    scores_BI = model.score_catalogue(model.fold_in(in_order([row[:2] for row in sequences])))
    assert scores_BI.argmax(1).tolist() == [row[2] for row in sequences]


def test_people_with_one_item_are_no_reason_to_fail_unless_all_have_one() -> None:
    model = model_of()
    batches = model.make_batches(in_order([[3], [1, 2], [4]]), batch_size=8, seed=1)
    assert batches.num_samples == 1
    with raises(TrainingError):
        model.make_batches(in_order([[3], [1], []]), batch_size=8, seed=1)


def test_auto_depends_on_the_length_of_histories() -> None:
    short, long = (SASRecConfig().resolved(1000, mean) for mean in (9.0, 160.0))
    assert (short.factors, short.max_length, short.dropout) == (64, 50, 0.5)
    assert (long.factors, long.max_length, long.dropout) == (96, 200, 0.2)
    assert (short.sampled_softmax, SASRecConfig().resolved(10_000).sampled_softmax) == (None, 1024)
    assert SASRecConfig(sampled_softmax=None).resolved(10_000).sampled_softmax is None
    assert SASRecConfig(heads=3).resolved(1000).factors == 66
    with raises(SettingError, "factors", 64, "heads", 3):
        SASRecConfig(factors=64, heads=3)


@pytest.mark.parametrize(
    ("num_users", "length", "num_items", "sampled_softmax", "blocks", "has_features"),
    [
        (400, 100, 3_000, None, 2, False),
        (1_500, 8, 20_000, 512, 1, False),
        (1_500, 8, 20_000, 512, 1, True),
        (40, 200, 500, None, 4, False),
    ],
)
def test_a_step_takes_no_more_memory_than_it_says(
    num_users: int,
    length: int,
    num_items: int,
    sampled_softmax: int | None,
    blocks: int,
    has_features: bool,
) -> None:
    rng = np.random.default_rng(3)
    rows = [rng.permutation(num_items)[:length].tolist() for _ in range(num_users)]
    histories = in_order(rows, num_items)
    settings = {"max_length": 200, "sampled_softmax": sampled_softmax, "blocks": blocks}
    model = SASRec(SASRecConfig(factors=64, dropout=0.5, **settings), num_users, num_items)
    model.count_items(histories)
    if has_features:
        model.take_features(in_order([range(0, num_items, step) for step in (1, 2, 3)], num_items))
    model.reset_parameters(1)
    batches = model.make_batches(histories, batch_size=8192, seed=1)
    batch = next(iter(batches.epoch(0)))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model.train()(batch).backward()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    changes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
    peak = np.cumsum([num_bytes for _, num_bytes in changes]).max()
    said = model.step_bytes(batches) - module._LIBRARY_BYTES
    assert 0.4 * said < peak <= said
