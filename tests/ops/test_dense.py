"""Layers, their products and their activations against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.activations import Activation, activate_, slope
from foretaste.ops.dense import activated, dense
from foretaste.ops.products import product, sum_of_samples
from tests.ops.cases import rms

ACTIVATIONS: dict[Activation | None, Callable[[Tensor], Tensor]] = {
    None: lambda value: value,
    "tanh": torch.tanh,
    "relu": torch.relu,
}
SHAPES = [(1, 1, 1), (7, 5, 3), (33, 17, 65), (64, 128, 32)]


def layer(shape: tuple[int, int, int], generator: torch.Generator) -> list[Tensor]:
    """Input, weight and bias in float64."""
    samples, inputs, outputs = shape
    sizes = [(samples, inputs), (outputs, inputs), (outputs,)]
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def results(found: Tensor, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    """The value and the gradients."""
    return [found, *torch.autograd.grad(found, inputs, upstream.to(found.dtype))]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_layers_are_linear_and_their_activation(
    activation: Activation | None,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    inputs = [tensor.to(dtype).requires_grad_() for tensor in layer(shape, generator)]
    upstream = torch.randn(shape[0], shape[2], generator=generator)
    expected = results(ACTIVATIONS[activation](F.linear(*inputs)), inputs, upstream)
    fused = dense(inputs[0], inputs[1], inputs[2], activation)
    split = activated(F.linear(*inputs[:2]), inputs[2], activation)
    for found in (fused, split):
        assert found.dtype == dtype
        torch.testing.assert_close(results(found, inputs, upstream), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_half_layers_are_as_accurate_as_plain_ones(
    activation: Activation | None, generator: torch.Generator
) -> None:
    apply = ACTIVATIONS[activation]
    exact = [tensor.requires_grad_() for tensor in layer((40, 64, 48), generator)]
    upstream = torch.randn(40, 48, generator=generator)
    truth = results(apply(F.linear(*exact)), exact, upstream)
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in exact]
    plain = results(apply(F.linear(*half)), half, upstream)
    single = [tensor.detach().float().requires_grad_() for tensor in exact]
    fused = dense(single[0], single[1], single[2], activation, compute_dtype=torch.bfloat16)
    split = activated(F.linear(*single[:2]), single[2], activation, torch.bfloat16)
    for layer_result in (fused, split):
        found = results(layer_result, single, upstream)
        assert [one.dtype for one in found] == [torch.bfloat16, *3 * [torch.float32]]
        for one, other, true in zip(found, plain, truth, strict=True):
            assert rms([one.double() - true]) <= 1.5 * rms([other.double() - true])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_products_take_transposed_views(dtype: torch.dtype, generator: torch.Generator) -> None:
    left = torch.randn(9, 30, generator=generator).to(dtype)
    right = torch.randn(20, 9, generator=generator).to(dtype)
    expected = left.double().T @ right.double().T
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
    for rows in (slice(None), slice(4, 9)):
        found = product(left[:, rows].T, right.T).double()
        torch.testing.assert_close(found, expected[rows], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_activations_and_their_slopes(activation: Activation | None, dtype: torch.dtype) -> None:
    values = [-200.0, -9.0, -1.0, -1e-3, 0.0, 1e-6, 0.5, 3.0, 200.0]
    value = torch.tensor(values, dtype=dtype, requires_grad=True)
    expected = ACTIVATIONS[activation](value)
    result = value.detach().clone()
    assert activate_(result, activation) is result
    rounding = 2.0 * torch.finfo(dtype).eps
    torch.testing.assert_close(result, expected, rtol=0.0, atol=rounding)
    upstream = torch.linspace(-1.0, 1.0, len(values), dtype=dtype)
    (slopes,) = torch.autograd.grad(expected, value, upstream)
    found = slope(upstream, result, activation)
    torch.testing.assert_close(found, slopes, rtol=0.0, atol=2.0 * rounding)


@pytest.mark.parametrize("num_samples", [1, 64, 65, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_of_samples(num_samples: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    rows = torch.randn(num_samples, 7, generator=generator).to(dtype)
    found = sum_of_samples(rows, torch.float32)
    assert found.dtype == torch.float32
    size = rows.double().abs().sum(0)
    torch.testing.assert_close(
        found.double() / size, rows.double().sum(0) / size, rtol=0.0, atol=torch.finfo(dtype).eps
    )
