"""New users for NeuMF: the fitted row, which is independent of other users."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.models.neumf import fold_in
from foretaste.models.neumf.config import GMFConfig, NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.neumf_loss.inputs import Objective, Samples
from tests.ops.cases import histories_of, random_histories

NUM_ITEMS = 40


@pytest.fixture
def model() -> NeuMF:
    model = NeuMF(NeuMFConfig(factors=4, layers=(8, 8, 4)), 12, NUM_ITEMS)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model.eval()


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    return random_histories(rng, 9, NUM_ITEMS)


@pytest.mark.parametrize(
    ("config", "weight"),
    [
        (NeuMFConfig(factors=4, layers=(8, 4), loss="softmax"), 1.0),
        (GMFConfig(factors=4), 0.03),
        (GMFConfig(factors=4, loss="bce"), 1.0),
        (GMFConfig(factors=4, prior_weight=0.5), 0.5),
    ],
)
def test_the_prior_weighs_by_loss_and_scores(
    config: NeuMFConfig | GMFConfig, weight: float
) -> None:
    model = NeuMF(config, 12, NUM_ITEMS)
    model.reset_parameters(1)
    assert model.eval()._prior().weight == pytest.approx(weight)


def test_answers_do_not_depend_on_shares(
    model: NeuMF, histories: HistoryTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model.fold_in(histories).parts
    monkeypatch.setattr(fold_in, "SAMPLES_AT_ONCE", 200)
    torch.testing.assert_close(model.fold_in(histories).parts, expected, rtol=1e-3, atol=1e-4)


def test_a_history_too_long_has_fewer_negatives(
    model: NeuMF, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_in, "SAMPLES_AT_ONCE", 100)
    sampled, turns_of = [], fold_in.sampled_turns

    def recorded(
        histories: HistoryTensors, objective: Objective, num_negatives: int, num_drawn: int
    ) -> list[Samples]:
        turns = turns_of(histories, objective, num_negatives, num_drawn)
        sampled.append((len(histories.item_index), len(turns)))
        return turns

    monkeypatch.setattr(fold_in, "sampled_turns", recorded)
    long, short = set(range(33)), {34, 35}
    alone = model.fold_in(histories_of([long], NUM_ITEMS)).parts
    among = model.fold_in(histories_of([short, long, short], NUM_ITEMS)).parts
    assert sampled == [(33, 2), (2, 4), (33, 2), (2, 4)]
    torch.testing.assert_close([part[1:2] for part in among], list(alone))


@pytest.mark.parametrize("num_drawn", [2, 4])
def test_the_negatives_of_a_turn_weigh_as_much_as_all(num_drawn: int) -> None:
    histories = histories_of([set(range(33))], NUM_ITEMS)
    turns = fold_in.sampled_turns(histories, Objective(), 4, num_drawn)
    assert len(turns) == num_drawn
    for turn in turns:
        assert turn.item_index_BK[:, 0].tolist() == histories.item_index.tolist()
        assert turn.weight_BK[:, 0].tolist() == pytest.approx([1 / (5 * 33)] * 33)
        assert turn.weight_BK[:, 1].tolist() == pytest.approx([4 / (5 * 33)] * 33)


def test_fewer_negatives_of_softmax_count_as_much_as_all(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """Each negative is drawn once instead of twice: the sum of the exponentials stays the same."""
    model = NeuMF(NeuMFConfig(factors=4, layers=(8, 4), loss="softmax", negatives=4), 12, NUM_ITEMS)
    model.reset_parameters(1)
    turns_of, drawn = fold_in.sampled_turns, []

    def doubled(
        histories: HistoryTensors, objective: Objective, num_negatives: int, num_drawn: int
    ) -> list[Samples]:
        drawn.append(num_drawn)
        (samples,) = turns_of(histories, objective, num_negatives, 2)
        if num_drawn == 2:
            return [samples]
        positive_N1, negative_N2 = samples.item_index_BK.split([1, 2], dim=1)
        weight_N1 = samples.weight_BK.sum(1, keepdim=True) / 5
        twice = Samples(
            torch.cat([positive_N1, negative_N2, negative_N2], dim=1),
            torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]]),
            weight_N1.expand(-1, 5),
            objective=replace(objective, negative_shift=0.0),
        )
        return [twice]

    monkeypatch.setattr(fold_in, "sampled_turns", doubled)
    history = histories_of([set(range(33))], NUM_ITEMS)
    expected = model.eval().fold_in(history).parts
    monkeypatch.setattr(fold_in, "SAMPLES_AT_ONCE", 100)
    fewer = model.fold_in(history).parts
    assert drawn == [4, 2]
    torch.testing.assert_close(fewer, expected, rtol=1e-3, atol=1e-5)


def test_negatives_are_not_in_the_history(histories: HistoryTensors) -> None:
    row_index_N = histories.row_index()
    (samples,) = fold_in.sampled_turns(histories, Objective("softmax"), 4, 4)
    owned = histories.to_dense().bool()
    assert torch.equal(samples.item_index_BK[:, 0].long(), histories.item_index.long())
    negative = ~owned[row_index_N[:, None], samples.item_index_BK[:, 1:].long()]
    has_everything = histories.lengths()[row_index_N] == NUM_ITEMS
    assert negative[~has_everything].all()
    assert samples.weight_BK[has_everything][:, 1:].eq(0.0).all()
    totals = torch.zeros(len(histories)).index_add_(0, row_index_N, samples.weight_BK.sum(1))
    torch.testing.assert_close(totals, (histories.lengths() > 0).float())


def test_negatives_depend_on_the_history_alone(histories: HistoryTensors) -> None:
    turns = fold_in.sampled_turns(histories, Objective(), 4, 4)
    for user in range(1, len(histories)):
        alone = histories[user : user + 1]
        start, stop = histories.offsets[user : user + 2].tolist()
        for found, turn in zip(fold_in.sampled_turns(alone, Objective(), 4, 4), turns, strict=True):
            assert torch.equal(found.item_index_BK, turn.item_index_BK[start:stop])


@pytest.mark.parametrize("loss", ["softmax", "bce"])
def test_gradients_of_project_users_equal_autograd(
    model: NeuMF, loss: Literal["softmax", "bce"], generator: torch.Generator
) -> None:
    """Softmax of factors alone has cosines; the other loss has the tower."""
    if loss == "softmax":
        model = NeuMF(GMFConfig(factors=4, loss=loss), 12, NUM_ITEMS)
    widths = [table.shape[1] for table in model._user_tables()]
    rows = [torch.randn(3, width, generator=generator, requires_grad=True) for width in widths]
    sides = model._project_users(rows)
    by_sides = [torch.randn(side.shape, generator=generator) for side in sides]
    total = sum((side * by_side).sum() for side, by_side in zip(sides, by_sides, strict=True))
    assert isinstance(total, Tensor)
    expected = torch.autograd.grad(total, rows, materialize_grads=True)
    torch.testing.assert_close(model._project_back(rows, by_sides), expected)
