"""The kernels for histories against float64, on shapes that miss the tiles.

On machines without a GPU they run in Triton's interpreter; its bfloat16 products are wrong, so half
precision is float16 there.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.ops import softmax_loss
from foretaste.ops.embedding_bag import encode
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.softmax_loss import reference
from tests.ops.cases import histories_of, random_histories, rms

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

SHAPES = [(1, 1, 1), (7, 31, 5), (3, 40, 70)]
"""Users, items, width."""


def layer_of(shape: tuple[int, int, int], device: torch.device, seed: int = 1) -> list[Tensor]:
    """Hidden rows, output weight and output bias."""
    num_users, num_items, width = shape
    generator = torch.Generator().manual_seed(seed)
    sizes = [(num_users, width), (num_items, width), (num_items,)]
    values = (torch.randn(size, generator=generator).to(device) for size in sizes)
    return [value.requires_grad_() for value in values]


def exact(layer: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in layer]


def results(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [value, *torch.autograd.grad(value, inputs)]


def histories_for(shape: tuple[int, int, int], device: torch.device) -> HistoryTensors:
    """The first user has no item, the last user every item."""
    return random_histories(np.random.default_rng(2), shape[0], shape[1], device=device)


def padded(histories: HistoryTensors) -> HistoryTensors:
    """The same histories with entries beyond the last offset."""
    item_index_N = torch.nn.functional.pad(histories.item_index, (0, 37), value=0)
    return HistoryTensors(histories.offsets, item_index_N, histories.num_items)


@pytest.mark.parametrize(
    ("shape", "dropout"), [(SHAPES[0], 0.0), (SHAPES[1], 0.5), (SHAPES[2], 0.5)]
)
def test_the_encoder_and_its_gradient(
    shape: tuple[int, int, int], dropout: float, device: torch.device
) -> None:
    histories = histories_for(shape, device)
    table_IH = layer_of(shape, device)[1]
    (exact_IH,) = exact([table_IH])
    settings = {"dropout": dropout, "key": -7}
    truth = encode(exact_IH, histories, **settings, implementation="reference")
    upstream_BH = torch.randn(truth.shape, generator=torch.Generator().manual_seed(5)).to(device)
    (true_gradient,) = torch.autograd.grad(truth, exact_IH, upstream_BH.double())
    for given in (histories, padded(histories)):
        found = encode(table_IH, given, **settings, implementation="triton")
        (gradient,) = torch.autograd.grad(found, table_IH, upstream_BH)
        torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.double(), true_gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [SHAPES[1], (4, 2100, 33)])
def test_the_likelihood_and_its_gradients(
    shape: tuple[int, int, int], device: torch.device
) -> None:
    targets = histories_for(shape, device)
    layer = layer_of(shape, device)
    exact_layer = exact(layer)
    truth = results(2.0 * reference.loss(*exact_layer, targets), exact_layer)
    for given in (targets, padded(targets)):
        value = softmax_loss.loss(*layer, given, scale=2.0, implementation="triton")
        for found, true in zip(results(value, layer), truth, strict=True):
            torch.testing.assert_close(found.double(), true, rtol=1e-4, atol=1e-4)


def test_the_likelihood_in_half_precision_is_as_accurate_as_plain(device: torch.device) -> None:
    half = torch.bfloat16 if device.type == "cuda" else torch.float16
    shape = (20, 90, 33)
    errors: list[tuple[list[Tensor], list[Tensor]]] = []
    for seed in range(3):
        targets = random_histories(
            np.random.default_rng(seed), shape[0], shape[1], share=0.1, device=device
        )
        layer = [
            (0.4 * tensor).detach().requires_grad_() for tensor in layer_of(shape, device, seed)
        ]
        exact_layer = exact(layer)
        rough = [tensor.detach().to(half).requires_grad_() for tensor in layer]
        truth = results(reference.loss(*exact_layer, targets), exact_layer)
        value = softmax_loss.loss(*layer, targets, compute_dtype=half, implementation="triton")
        kernel = results(value, layer)
        plain = results(reference.loss(*rough, targets), rough)
        errors.append((differences(kernel, truth), differences(plain, truth)))
    for position in range(4):
        kernel_errors, plain_errors = ([pair[side][position] for pair in errors] for side in (0, 1))
        assert rms(kernel_errors) <= 1.5 * rms(plain_errors)


def test_large_logits_stay_finite(device: torch.device) -> None:
    shape = (5, 40, 6)
    targets = histories_for(shape, device)
    hidden_BD, weight_ID, bias_I = layer_of(shape, device)
    layer = (hidden_BD * 1e3, weight_ID, bias_I)
    found = softmax_loss.loss(*layer, targets, implementation="triton")
    torch.testing.assert_close(found, reference.loss(*layer, targets))


def test_users_without_items_add_nothing(device: torch.device) -> None:
    targets = histories_of([set(), set()], 23, device)
    layer = layer_of((2, 23, 5), device)
    value = softmax_loss.loss(*layer, targets, implementation="triton")
    assert value.item() == 0.0
    assert all(gradient.eq(0.0).all() for gradient in torch.autograd.grad(value, layer))
    encoded = encode(layer[1], targets, dropout=0.5, key=3, implementation="triton")
    assert encoded.eq(0.0).all()


def differences(found: list[Tensor], truth: list[Tensor]) -> list[Tensor]:
    return [(one.double() - other).detach() for one, other in zip(found, truth, strict=True)]
