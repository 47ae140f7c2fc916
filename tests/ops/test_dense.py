"""The linear layer and its products against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.activations import tanh
from foretaste.ops.dense import dense
from foretaste.ops.products import product, sum_of_samples
from tests.ops.cases import rms

SHAPES = [(1, 1, 1), (7, 5, 3), (33, 17, 65), (64, 128, 32)]


def layer(shape: tuple[int, int, int], generator: torch.Generator) -> list[Tensor]:
    """Input, weight and bias in float64."""
    samples, inputs, outputs = shape
    sizes = [(samples, inputs), (outputs, inputs), (outputs,)]
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def results(found: Tensor, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    """The value and the gradients."""
    return [found, *torch.autograd.grad(found, inputs, upstream.to(found.dtype))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dense_is_linear(
    shape: tuple[int, int, int], dtype: torch.dtype, generator: torch.Generator
) -> None:
    inputs = [tensor.to(dtype).requires_grad_() for tensor in layer(shape, generator)]
    upstream = torch.randn(shape[0], shape[2], generator=generator)
    found = results(dense(*inputs), inputs, upstream)
    expected = results(F.linear(*inputs), inputs, upstream)
    assert found[0].dtype == dtype
    torch.testing.assert_close(found, expected)


def test_half_products_are_as_accurate_as_plain_ones(generator: torch.Generator) -> None:
    exact = [tensor.requires_grad_() for tensor in layer((40, 64, 48), generator)]
    upstream = torch.randn(40, 48, generator=generator)
    truth = results(F.linear(*exact), exact, upstream)
    single = [tensor.detach().float().requires_grad_() for tensor in exact]
    found = results(dense(*single, torch.bfloat16), single, upstream)
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in exact]
    plain = results(F.linear(*half), half, upstream)
    for one, other, true in zip(found, plain, truth, strict=True):
        assert one.dtype == torch.float32
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tanh_is_tanh(dtype: torch.dtype) -> None:
    value = torch.tensor([-200.0, -9.0, -1.0, -1e-3, 0.0, 1e-6, 0.5, 3.0, 200.0], dtype=dtype)
    value.requires_grad_()
    rounding = 2.0 * torch.finfo(dtype).eps
    found, expected = tanh(value), torch.tanh(value)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=rounding)
    slopes = [torch.autograd.grad(result.sum(), value)[0] for result in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=0.0, atol=2.0 * rounding)


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
