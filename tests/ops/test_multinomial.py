"""The multinomial likelihood in chunks of users against the same written out plainly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.multinomial import chunked, reference
from tests.ops.cases import histories_of, random_histories, rms

NUM_ITEMS = 23


def make_layer(
    num_users: int,
    generator: torch.Generator,
    *,
    width: int = 6,
    num_items: int = NUM_ITEMS,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden rows, output weight and output bias."""
    sizes = [(num_users, width), (num_items, width), (num_items,)]
    values = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    hidden_BD, weight_ID, bias_I = (value.requires_grad_() for value in values)
    return hidden_BD, weight_ID, bias_I


@pytest.fixture
def targets(rng: np.random.Generator) -> HistoryTensors:
    """Ten users; the first has nothing, the last everything."""
    return random_histories(rng, 10, NUM_ITEMS)


def test_a_likelihood_worked_out_by_hand() -> None:
    """Two of three items seen; logits 0, ln 2, ln 5 give shares 1/8, 2/8, 5/8."""
    weight_ID = torch.tensor([[1.0], [2.0], [5.0]], dtype=torch.float64).log()
    hidden_BD = torch.ones(1, 1, dtype=torch.float64)
    bias_I = torch.zeros(3, dtype=torch.float64)
    expected = torch.tensor(-(np.log(2 / 8) + np.log(5 / 8)))
    for loss in (reference.loss, chunked.loss):
        found = loss(hidden_BD, weight_ID, bias_I, histories_of([{1, 2}], 3))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("logits_at_once", [1, 3 * NUM_ITEMS, 4 * NUM_ITEMS + 5, 1 << 21])
def test_loss_and_gradients_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch,
    targets: HistoryTensors,
    generator: torch.Generator,
    logits_at_once: int,
) -> None:
    monkeypatch.setattr(chunked, "_LOGITS_AT_ONCE", {"cpu": logits_at_once})
    layer = make_layer(len(targets), generator)
    expected, found = reference.loss(*layer, targets), chunked.loss(*layer, targets)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, layer), torch.autograd.grad(expected, layer)
    )


def test_users_without_items_add_nothing(generator: torch.Generator) -> None:
    layer = make_layer(2, generator)
    loss = chunked.loss(*layer, histories_of([set(), set()], NUM_ITEMS))
    assert loss.item() == 0.0
    assert all(gradient.eq(0.0).all() for gradient in torch.autograd.grad(loss, layer))


def test_large_logits_stay_finite(targets: HistoryTensors, generator: torch.Generator) -> None:
    hidden_BD, weight_ID, bias_I = make_layer(len(targets), generator, dtype=torch.float32)
    layer = (hidden_BD * 1e3, weight_ID, bias_I)
    torch.testing.assert_close(chunked.loss(*layer, targets), reference.loss(*layer, targets))


def test_bf16_is_as_accurate_as_plain_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the loss and of each gradient, over several draws, against float64."""
    monkeypatch.setattr(chunked, "_LOGITS_AT_ONCE", {"cpu": 2000})
    kernel_errors, plain_errors = [], []
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        targets = random_histories(np.random.default_rng(seed), 40, 90, share=0.1)
        layer = make_layer(40, generator, width=33, num_items=90, dtype=torch.float32)
        exact, rough = (
            [tensor.detach().to(dtype).requires_grad_() for tensor in layer]
            for dtype in (torch.float64, torch.bfloat16)
        )
        truth = reference.loss(*exact, targets)
        kernel = chunked.loss(*layer, targets, compute_dtype=torch.bfloat16)
        plain = reference.loss(*rough, targets)
        true_values = [truth, *torch.autograd.grad(truth, exact)]
        kernel_values = [kernel, *torch.autograd.grad(kernel, layer)]
        plain_values = [plain, *torch.autograd.grad(plain, rough)]
        kernel_errors.append(differences(kernel_values, true_values))
        plain_errors.append(differences(plain_values, true_values))
    for kernel_error, plain_error in zip(
        zip(*kernel_errors, strict=True), zip(*plain_errors, strict=True), strict=True
    ):
        assert rms(kernel_error) <= 1.5 * rms(plain_error)


def differences(found: list[Tensor], truth: list[Tensor]) -> list[Tensor]:
    return [(one.double() - other).detach() for one, other in zip(found, truth, strict=True)]
