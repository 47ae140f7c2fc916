"""Exponentials that the product of the logits takes itself, against the likelihood written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.ops.dense import fuses, linear
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.softmax_loss import chunked, exponentials, loss, reference
from foretaste.ops.softmax_loss.exponentials import Exponentials, FusedExponentials
from tests.ops.cases import histories_of, random_histories, rms

NUM_USERS, NUM_ITEMS, WIDTH = 40, 96, 33

needs_fusion = pytest.mark.skipif(
    not fuses(torch.ones(1, dtype=torch.bfloat16)), reason="no bf16 products on this processor"
)


class Counted:
    """Number of chunks for which each kind of exponentials was used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fused = self.general = 0
        fused, general = FusedExponentials.likelihood_, Exponentials.likelihood_

        def count_fused(
            exponentials: FusedExponentials, *given: object
        ) -> tuple[Tensor, Tensor] | None:
            found = fused(exponentials, *given)  # type: ignore[arg-type]
            self.fused += found is not None
            return found

        def count_general(exponentials: Exponentials, *given: object) -> tuple[Tensor, Tensor]:
            self.general += 1
            return general(exponentials, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(FusedExponentials, "likelihood_", count_fused)
        monkeypatch.setattr(Exponentials, "likelihood_", count_general)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def make_layer(generator: torch.Generator, *, higher: float = 0.0) -> tuple[Tensor, ...]:
    """Hidden rows, weights and biases whose logits have a deviation of 4, moved up as asked."""
    hidden_BD = torch.randn(NUM_USERS, WIDTH, generator=generator)
    weight_ID = torch.randn(NUM_ITEMS, WIDTH, generator=generator) * (4.0 / WIDTH**0.5)
    bias_I = torch.randn(NUM_ITEMS, generator=generator) + higher
    return tuple(tensor.requires_grad_() for tensor in (hidden_BD, weight_ID, bias_I))


def results(value: Tensor, layer: tuple[Tensor, ...]) -> list[Tensor]:
    return [value.detach(), *torch.autograd.grad(value, layer)]


def errors(
    layer: tuple[Tensor, ...], targets: HistoryTensors, dtype: torch.dtype = torch.bfloat16
) -> list[float]:
    """Of the loss and its three gradients, relative to their sizes."""
    exact = tuple(tensor.detach().double().requires_grad_() for tensor in layer)
    truth = results(reference.loss(*exact, targets), exact)
    found = results(loss(*layer, targets, compute_dtype=dtype), layer)
    return [
        rms([one.double() - true]) / rms([true]) for one, true in zip(found, truth, strict=True)
    ]


@needs_fusion
def test_gradients_are_closer_than_by_rounded_logits(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_draws, found = 6, []
    for can in (FusedExponentials.can, lambda *_: False):
        monkeypatch.setattr(FusedExponentials, "can", can)
        draws = []
        for seed in range(num_draws):
            layer = make_layer(torch.Generator().manual_seed(seed))
            rng = np.random.default_rng(seed)
            draws.append(errors(layer, random_histories(rng, NUM_USERS, NUM_ITEMS, share=0.1)))
        found.append(np.mean(draws, axis=0))
    assert (counted.fused, counted.general) == (num_draws, num_draws)
    fused, general = found
    assert fused[0] < 1e-3
    assert (fused[1:] < 0.95 * general[1:]).all()


@needs_fusion
@pytest.mark.parametrize("higher", [-60.0, 34.0, 1e4])
def test_logits_out_of_range_take_the_other_way(
    counted: Counted, generator: torch.Generator, rng: np.random.Generator, higher: float
) -> None:
    targets = random_histories(rng, NUM_USERS, NUM_ITEMS, share=0.1)
    with torch.no_grad():
        layer = make_layer(generator, higher=higher)
    found = errors(layer, targets)
    assert (counted.fused, counted.general) == (0, 1)
    if abs(higher) < 100.0:  # beyond, the logits themselves are rounded to nothing
        assert all(one < 0.3 for one in found)


@needs_fusion
def test_one_impossible_item_sends_only_its_chunk_the_other_way(
    counted: Counted, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exponential is 0, whose logarithm the user who has it would need."""
    monkeypatch.setattr(chunked, "_chunks", lambda *_: [slice(0, 20), slice(20, 40)])
    hidden_BD, weight_ID, bias_I = make_layer(generator)
    with torch.no_grad():
        bias_I[5] = -80.0
    layer = (hidden_BD, weight_ID, bias_I)
    targets = histories_of([{5, 6}, *({1, 2, row} for row in range(6, 45))], NUM_ITEMS)
    assert all(one < 0.02 for one in errors(layer, targets))
    assert (counted.fused, counted.general) == (1, 1)


@needs_fusion
def test_users_without_items_and_tiles_of_items(
    counted: Counted, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "_ITEMS_AT_ONCE", {"cpu": 32})
    layer = make_layer(generator)
    rows = [set[int]() if row % 3 else {row, row + 50} for row in range(NUM_USERS)]
    assert all(one < 0.01 for one in errors(layer, histories_of(rows, NUM_ITEMS)))
    nobody = histories_of([set()] * NUM_USERS, NUM_ITEMS)
    value = loss(*layer, nobody, compute_dtype=torch.bfloat16)
    assert [tensor.abs().max() for tensor in results(value, layer)] == [0.0] * 4
    assert (counted.fused, counted.general) == (2, 0)


@needs_fusion
@pytest.mark.parametrize(("total", "fused"), [(0.0021, 0), (0.0018, 1), (1.2e-26, 1), (0.8e-26, 0)])
def test_exponentials_fit_where_a_sigmoid_is_one_and_none_is_lost(
    counted: Counted, total: float, fused: int
) -> None:
    hidden_BD = torch.zeros(NUM_USERS, WIDTH)
    weight_ID = torch.zeros(NUM_ITEMS, WIDTH)
    bias_I = torch.full((NUM_ITEMS,), math.log(total / NUM_ITEMS) + 40.0)
    targets = histories_of([{row} for row in range(NUM_USERS)], NUM_ITEMS)
    value = loss(hidden_BD, weight_ID, bias_I, targets, compute_dtype=torch.bfloat16)
    assert value.item() == pytest.approx(NUM_USERS * math.log(NUM_ITEMS), rel=2e-3)
    assert (counted.fused, counted.general) == (fused, 1 - fused)


@needs_fusion
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_catalogues_of_no_round_number(
    counted: Counted, generator: torch.Generator, rng: np.random.Generator, dtype: torch.dtype
) -> None:
    """Copies of the weights are padded, with items that add nothing to a total this low."""
    num_items = NUM_ITEMS - 7
    hidden_BD, *output = make_layer(generator, higher=-10.0)
    cut = (hidden_BD, *(tensor[:num_items] for tensor in output))
    layer = tuple(tensor.detach().to(dtype).requires_grad_() for tensor in cut)
    targets = random_histories(rng, NUM_USERS, num_items, share=0.1)
    padded = dtype == torch.float32
    assert all(one < (0.01 if padded else 0.03) for one in errors(layer, targets))
    assert (counted.fused, counted.general) == (int(padded), int(not padded))


@needs_fusion
def test_a_coarse_sigmoid_is_not_used(
    counted: Counted, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another processor's kernels may have it: all exponentials too high alike look right."""
    monkeypatch.setattr(exponentials, "_tail_is_exp", exponentials._tail_is_exp.__wrapped__)
    monkeypatch.setattr(exponentials, "linear", lambda *given: linear(*given) * 1.1)
    targets = histories_of([{row} for row in range(NUM_USERS)], NUM_ITEMS)
    loss(*make_layer(generator), targets, compute_dtype=torch.bfloat16)
    assert (counted.fused, counted.general) == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_other_dtypes_take_the_other_way(
    counted: Counted, generator: torch.Generator, dtype: torch.dtype
) -> None:
    layer = make_layer(generator)
    targets = histories_of([{row} for row in range(NUM_USERS)], NUM_ITEMS)
    errors(layer, targets, dtype)
    assert (counted.fused, counted.general) == (0, 1)
