"""The compiled interaction against the same written out plainly."""

from __future__ import annotations

import pytest
import torch

from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss import reference
from foretaste.ops.neumf_loss.inputs import Samples, TowerDropout
from tests.compiler import compiling
from tests.ops.cases import rms
from tests.ops.neumf_loss.test_chunked import Shape, make_inputs, make_samples


@compiling
@pytest.mark.parametrize(
    ("rate", "dtype", "error"),
    [(0.0, torch.float32, 1e-5), (0.5, torch.float32, 1e-5), (0.5, torch.bfloat16, 3e-2)],
)
def test_loss_and_gradients_are_the_plain_ones(
    rate: float, dtype: torch.dtype, error: float, generator: torch.Generator
) -> None:
    """Of two batch sizes, by one compiled program."""
    for rows in (11, 6):
        shape = Shape(rows=rows, factors=8, widths=(16, 12, 8))
        inputs = make_inputs(shape, generator, scale=0.5, dtype=torch.float32)
        samples: Samples = make_samples(shape, generator)
        dropout = TowerDropout(rate, torch.tensor(-8))
        expected = reference.loss(inputs, samples, dropout)
        found = neumf_loss.loss(
            inputs, samples, dropout, compute_dtype=dtype, implementation="compiled"
        )
        torch.testing.assert_close(found, expected, rtol=error, atol=error)
        wanted = torch.autograd.grad(expected, inputs.tensors())
        given = torch.autograd.grad(found, inputs.tensors())
        for one, other in zip(given, wanted, strict=True):
            assert rms(one - other) <= error * rms(other) + 1e-7
