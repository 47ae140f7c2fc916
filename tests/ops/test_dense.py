"""Layers, their products and their activations against PyTorch's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import foretaste
from foretaste.ops import dense as dense_module
from foretaste.ops.dense import (
    Activation,
    activate,
    activate_,
    candidate_products,
    dense,
    linear,
    product,
    slope,
    sum_of_samples,
)
from tests.ops.cases import rms

ACTIVATIONS: dict[Activation | None, Callable[[Tensor], Tensor]] = {
    None: lambda value: value,
    "tanh": torch.tanh,
    "relu": torch.relu,
}
SOURCES = str(Path(foretaste.__file__).parent.parent)


def layer(shape: tuple[int, int, int], generator: torch.Generator) -> list[Tensor]:
    """Input, weight and bias in float64."""
    samples, inputs, outputs = shape
    sizes = [(samples, inputs), (outputs, inputs), (outputs,)]
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def results(found: Tensor, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    """The value and the gradients."""
    return [found, *torch.autograd.grad(found, inputs, upstream.to(found.dtype))]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 17, 65)])
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
    split = activate(F.linear(*inputs[:2]), inputs[2], activation)
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
    split = activate(F.linear(*single[:2]), single[2], activation, torch.bfloat16)
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


@pytest.mark.parametrize("num_samples", [64, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_of_samples(num_samples: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    rows = torch.randn(num_samples, 7, generator=generator).to(dtype)
    found = sum_of_samples(rows, torch.float32)
    assert found.dtype == torch.float32
    size = rows.double().abs().sum(0)
    torch.testing.assert_close(
        found.double() / size, rows.double().sum(0) / size, rtol=0.0, atol=torch.finfo(dtype).eps
    )


@pytest.fixture(params=[True, False], ids=["as found", "without oneDNN"])
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(dense_module, "fuses", lambda tensor: False)


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 7, 3), (64, 130, 33), (0, 4, 3)])
def test_products_are_as_accurate_as_plain_ones(
    shape: tuple[int, int, int], dtype: torch.dtype, generator: torch.Generator
) -> None:
    num_samples, num_inputs, num_outputs = shape
    input_SN = torch.randn(num_samples, num_inputs, generator=generator).to(dtype)
    weight_MN = torch.randn(num_outputs, num_inputs, generator=generator).to(dtype)
    bias_M = torch.randn(num_outputs, generator=generator).to(dtype)
    for fast, plain in (
        (linear(input_SN, weight_MN), lambda *given: F.linear(*given[:2])),
        (linear(input_SN, weight_MN, bias_M), F.linear),
        (linear(input_SN, weight_MN, bias_M, "relu"), lambda *given: F.linear(*given).relu()),
        (linear(input_SN, weight_MN, bias_M, "tanh"), lambda *given: F.linear(*given).tanh()),
    ):
        truth = plain(input_SN.double(), weight_MN.double(), bias_M.double())
        rough = plain(input_SN, weight_MN, bias_M)
        assert fast.dtype == dtype
        assert fast.shape == truth.shape
        if fast.numel():
            allowed = 1.5 * rms([rough - truth]) + torch.finfo(dtype).eps * rms([truth])
            assert rms([fast - truth]) <= allowed


def test_products_work_on_older_processors() -> None:
    """oneDNN has no bf16 products without AVX-512, which most laptops lack."""
    code = (
        "import torch; from foretaste.ops.dense import linear; "
        "ones = torch.ones(16, 16, dtype=torch.bfloat16); "
        "assert (linear(ones, ones) == 16).all(); "
        "assert (linear(ones, ones, ones[0], 'relu') == 17).all()"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": SOURCES}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")  # once a process
@pytest.mark.parametrize(
    ("samples", "dtype", "num_candidates"),
    [
        (True, torch.float32, 0),
        (True, torch.float32, 7),
        (False, torch.float32, 30),
        (True, torch.bfloat16, 30),
    ],
)
def test_products_with_candidates(
    samples: bool,
    dtype: torch.dtype,
    num_candidates: int,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
    limit: Callable[..., None],
) -> None:
    """Candidates come in any order and with repeats, in parts of larger tensors, a few rows at
    once."""
    monkeypatch.setattr(dense_module, "has_sampled_products", lambda: samples)
    limit(candidate_numbers=120)
    vector_BD = torch.randn(7, 10, generator=generator).to(dtype)[:, 2:6]
    table_ID = torch.randn(9, 4, generator=generator).to(dtype)
    index_BK = torch.randint(9, (7, 40), generator=generator, dtype=torch.int32)
    index_BK = index_BK[:, 10 : 10 + num_candidates]
    expected = (table_ID[index_BK].double() * vector_BD[:, None].double()).sum(2)
    found = candidate_products(vector_BD, table_ID, index_BK)
    assert found.dtype == dtype
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_gradients_layers_have_no_graph_and_the_same_results(dtype: torch.dtype) -> None:
    inputs = layer((7, 5, 3), torch.Generator().manual_seed(0))
    value, weight, bias = (one.float().requires_grad_() for one in inputs)

    def found() -> list[Tensor]:
        product = dense(value, weight, bias, "tanh", compute_dtype=dtype)
        return [product, activate(product.float(), bias, "relu", dtype)]

    expected = found()
    with torch.no_grad():
        alike = found()
    for one, other in zip(alike, expected, strict=True):
        assert (one.requires_grad, other.requires_grad) == (False, True)
        assert torch.equal(one, other)
