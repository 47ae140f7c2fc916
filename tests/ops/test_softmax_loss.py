"""The multinomial likelihood in chunks of users against a plain computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.softmax_loss import chunked, loss, reference
from tests.ops.allocations import LargestAllocation
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
    """Ten users; the first has no item, the last every item."""
    return random_histories(rng, 10, NUM_ITEMS)


def test_a_likelihood_worked_out_by_hand() -> None:
    """The user saw two items in three; logits 0, ln 2, ln 5 give shares 1/8, 2/8, 5/8."""
    weight_ID = torch.tensor([[1.0], [2.0], [5.0]], dtype=torch.float64).log()
    hidden_BD = torch.ones(1, 1, dtype=torch.float64)
    bias_I = torch.zeros(3, dtype=torch.float64)
    expected = torch.tensor(-(np.log(2 / 8) + np.log(5 / 8)))
    for implementation in (reference.loss, chunked.loss):
        found = implementation(hidden_BD, weight_ID, bias_I, histories_of([{1, 2}], 3))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("logits_at_once", [1, 4 * NUM_ITEMS + 5, 1 << 21])
def test_loss_and_gradients_are_the_plain_ones(
    limit: Callable[..., None],
    targets: HistoryTensors,
    generator: torch.Generator,
    logits_at_once: int,
) -> None:
    limit(logits_bytes=8 * logits_at_once, narrow_bytes=8 * logits_at_once)
    layer = make_layer(len(targets), generator)
    expected, found = reference.loss(*layer, targets), chunked.loss(*layer, targets)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, layer), torch.autograd.grad(expected, layer)
    )


def test_users_without_items_add_nothing(generator: torch.Generator) -> None:
    layer = make_layer(2, generator)
    value = loss(*layer, histories_of([set(), set()], NUM_ITEMS))
    assert value.item() == 0.0
    assert all(gradient.eq(0.0).all() for gradient in torch.autograd.grad(value, layer))


def test_large_logits_stay_finite(targets: HistoryTensors, generator: torch.Generator) -> None:
    hidden_BD, weight_ID, bias_I = make_layer(len(targets), generator, dtype=torch.float32)
    layer = (hidden_BD * 1e3, weight_ID, bias_I)
    torch.testing.assert_close(chunked.loss(*layer, targets), reference.loss(*layer, targets))


@pytest.mark.parametrize("narrow_bytes", [0, 96 * 2 * 4 * 33])
def test_bf16_is_as_accurate_as_plain_bf16(limit: Callable[..., None], narrow_bytes: int) -> None:
    """Errors of the loss and of each gradient, over several draws, against float64."""
    limit(logits_bytes=4000, narrow_bytes=narrow_bytes)
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


@pytest.mark.parametrize(
    ("items_at_once", "logits_at_once", "dtype", "error"),
    [
        (1, 1 << 21, torch.float64, 1e-9),
        (5, 3 * NUM_ITEMS, torch.float32, 1e-4),
        (16, 3 * NUM_ITEMS, torch.bfloat16, 0.05),  # its copy of the weights is padded to sixteen
    ],
)
def test_tiles_of_items_change_nothing(
    limit: Callable[..., None],
    targets: HistoryTensors,
    generator: torch.Generator,
    items_at_once: int,
    logits_at_once: int,
    dtype: torch.dtype,
    error: float,
) -> None:
    limit(items=items_at_once, logits_bytes=4 * logits_at_once, narrow_bytes=0)
    kept = torch.promote_types(dtype, torch.float32)
    layer = make_layer(len(targets), generator, width=3, dtype=kept)
    expected = 0.5 * reference.loss(*layer, targets)
    found = loss(*layer, targets, scale=0.5, compute_dtype=dtype)
    torch.testing.assert_close(found, expected, rtol=error, atol=error)
    torch.testing.assert_close(
        torch.autograd.grad(found, layer),
        torch.autograd.grad(expected, layer),
        rtol=error,
        atol=error,
    )


@pytest.mark.parametrize("learns_bias", [True, False])
@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 0.05)]
)
def test_narrow_weights_are_summed_over_chunks(
    limit: Callable[..., None],
    rng: np.random.Generator,
    generator: torch.Generator,
    dtype: torch.dtype,
    error: float,
    learns_bias: bool,
) -> None:
    """Three chunks, each of more rows than twice the width with the bias, padded."""
    limit(narrow_bytes=40 * 32 * dtype.itemsize)
    targets = random_histories(rng, 120, NUM_ITEMS)
    kept = torch.promote_types(dtype, torch.float32)
    layer = make_layer(120, generator, width=2, dtype=kept)
    layer[2].requires_grad_(learns_bias)
    expected, found = reference.loss(*layer, targets), loss(*layer, targets, compute_dtype=dtype)
    expected.backward()
    wanted = [tensor.grad for tensor in layer]
    for tensor in layer:
        tensor.grad = None
    found.backward()
    torch.testing.assert_close(found, expected, rtol=error, atol=error)
    assert (layer[2].grad is not None) == learns_bias
    for tensor, gradient in zip(layer, wanted, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, rtol=error, atol=10 * error)


def test_a_gpu_takes_few_operations_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, limit: Callable[..., None], generator: torch.Generator
) -> None:
    """NVIDIA's Mult-VAE, 24,576 users and 20,108 items, with every size divided by 64."""
    gpu = LIMITS["cuda"]
    limit(
        logits_bytes=gpu.logits_bytes >> 12,
        narrow_bytes=gpu.narrow_bytes,
        items=gpu.items >> 6,
        exponentials=gpu.exponentials >> 12,
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    targets = random_histories(np.random.default_rng(1), 384, 314, share=0.01)
    layer = make_layer(384, generator, width=9, num_items=314, dtype=torch.float32)
    with CountedOperations() as counted:
        loss(*layer, targets).backward()
    assert counted.num_operations < 2000


class CountedOperations(TorchDispatchMode):
    """Counts calls on tensors inside the context."""

    num_operations = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        self.num_operations += 1
        return function(*arguments, **(named or {}))


def test_without_gradients_only_the_value_is_found(
    targets: HistoryTensors, generator: torch.Generator
) -> None:
    layer = make_layer(len(targets), generator)
    expected = reference.loss(*layer, targets)
    with torch.no_grad():
        found = loss(*layer, targets)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected.detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_small_scale_costs_no_accuracy(
    targets: HistoryTensors, generator: torch.Generator, dtype: torch.dtype
) -> None:
    """One divided by a large batch's users is near the smallest float16."""
    layer = make_layer(len(targets), generator, dtype=torch.float32)
    large, small = (
        torch.autograd.grad(loss(*layer, targets, scale=scale, compute_dtype=dtype), layer)
        for scale in (1.0, 2.0**-20)
    )
    for one, other in zip(large, small, strict=True):
        torch.testing.assert_close(other * 2.0**20, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_does_not_grow_with_users_times_items(
    limit: Callable[..., None], generator: torch.Generator, dtype: torch.dtype
) -> None:
    """For any number of users, no memory is larger than the output weights or the hidden rows."""
    limit(logits_bytes=1, narrow_bytes=0)
    num_items, width, largest = 3000, 8, {}
    for num_users in (20, 320):
        targets = random_histories(np.random.default_rng(1), num_users, num_items, share=0.001)
        layer = make_layer(num_users, generator, width=width, num_items=num_items)
        single = [tensor.detach().float().requires_grad_() for tensor in layer]
        with LargestAllocation() as largest[num_users]:
            loss(*single, targets, compute_dtype=dtype).backward()
    assert largest[20].num_bytes == largest[320].num_bytes <= 2 * 4 * (num_items + 16) * width


def differences(found: list[Tensor], truth: list[Tensor]) -> list[Tensor]:
    return [(one.double() - other).detach() for one, other in zip(found, truth, strict=True)]


def test_float16_has_room_for_large_catalogues(generator: torch.Generator) -> None:
    """With near-uniform logits and one item per user, the slope is as large as the catalogue."""
    num_items = 80_000
    targets = histories_of([{7}, {0, num_items - 1}], num_items)
    layer = make_layer(2, generator, width=4, num_items=num_items, dtype=torch.float32)
    layer = tuple((0.01 * tensor).detach().requires_grad_() for tensor in layer)
    wanted = torch.autograd.grad(loss(*layer, targets, scale=0.5), layer)
    found = torch.autograd.grad(
        loss(*layer, targets, scale=0.5, compute_dtype=torch.float16), layer
    )
    for one, other in zip(found, wanted, strict=True):
        assert one.isfinite().all()
        assert rms([one - other]) < 0.05 * rms([other])
