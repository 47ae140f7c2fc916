"""Fast products against plain ones, with and without oneDNN."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import foretaste
from foretaste.ops import linear as linear_module
from foretaste.ops.linear import linear, packed
from tests.ops.cases import rms

SOURCES = str(Path(foretaste.__file__).parent.parent)
SHAPES = [(1, 1, 1), (5, 7, 3), (64, 130, 33), (0, 4, 3)]


@pytest.fixture(params=[True, False], ids=["as found", "without oneDNN"])
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(linear_module, "fuses", lambda tensor: False)


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
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
        (linear(input_SN, weight_MN, bias_M, "sigmoid"), lambda *given: F.linear(*given).sigmoid()),
        (linear(input_SN, packed(weight_MN, num_samples), bias_M), F.linear),
    ):
        truth = plain(input_SN.double(), weight_MN.double(), bias_M.double())
        rough = plain(input_SN, weight_MN, bias_M)
        assert fast.dtype == dtype
        assert fast.shape == truth.shape
        if fast.numel():
            allowed = 1.5 * rms([rough - truth]) + torch.finfo(dtype).eps * rms([truth])
            assert rms([fast - truth]) <= allowed


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tanh_is_exact_to_a_few_roundings_of_one(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    input_SN = torch.randn(64, 33, generator=generator).to(dtype)
    weight_MN = (0.3 * torch.randn(130, 33, generator=generator)).to(dtype)
    bias_M = torch.linspace(-20.0, 20.0, 130).to(dtype)
    truth = F.linear(input_SN.double(), weight_MN.double(), bias_M.double()).tanh()
    found = linear(input_SN, weight_MN, bias_M, "tanh")
    allowed = {torch.float64: 1e-14, torch.float32: 5e-6, torch.bfloat16: 0.02}[dtype]
    torch.testing.assert_close(found.double(), truth, rtol=0.0, atol=allowed)


@pytest.mark.parametrize("instructions", ["SSE41", "AVX2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_work_on_older_processors(instructions: str, dtype: str) -> None:
    """oneDNN has no bf16 products without AVX-512, which most laptops lack."""
    code = (
        "import torch; from foretaste.ops.linear import linear, packed; "
        f"ones = torch.ones(16, 16, dtype=torch.{dtype}); "
        "assert (linear(ones, ones) == 16).all(); "
        "assert (linear(ones, packed(ones, 16), ones[0], 'relu') == 17).all()"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions, "PYTHONPATH": SOURCES}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


def test_fp32_products_keep_full_precision(generator: torch.Generator) -> None:
    """No tf32, no bf16 in disguise: the error is that of fp32."""
    left, right = (torch.randn(256, 512, generator=generator) for _ in range(2))
    truth = F.linear(left.double(), right.double())
    assert rms([linear(left, right).double() - truth]) < 1e-6 * rms([truth])


def test_a_product_does_not_depend_on_what_else_is_in_the_batch(
    generator: torch.Generator,
) -> None:
    input_SN, weight_MN = (torch.randn(n, 96, generator=generator) for n in (300, 40))
    whole = linear(input_SN, weight_MN)
    bounds = itertools.pairwise([0, 1, 8, 41, 300])
    parts = [linear(input_SN[start:stop], weight_MN) for start, stop in bounds]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)
