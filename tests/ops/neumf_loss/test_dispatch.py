"""Dispatch of the interaction: every implementation serves the same calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import pytest
import torch

from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss import chunked, reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs
from foretaste.ops.triton import support as triton_support
from tests.ops.neumf_loss.test_chunked import Shape, make_inputs, make_samples, moved

WITHOUT_TRITON = [name for name in get_args(neumf_loss.Implementation) if name != "triton"]


@pytest.mark.parametrize("implementation", WITHOUT_TRITON)
def test_rows_are_looked_up(
    implementation: neumf_loss.Implementation, generator: torch.Generator
) -> None:
    """Some rows twice, some never."""
    inputs = make_inputs(Shape(), generator, dtype=torch.float64)
    item_index_BK = make_samples(Shape(), generator).item_index_BK
    user_index_B = torch.tensor([3, 0, 3, 10, 7])
    found = neumf_loss.logits(
        inputs, item_index_BK[:5], user_index_B, implementation=implementation
    )
    expected = reference.logits(inputs, item_index_BK[:5].new_zeros(11, 17) + torch.arange(17))
    expected = expected[user_index_B[:, None], item_index_BK[:5].long()]
    torch.testing.assert_close(found.detach(), expected.detach())


@pytest.mark.parametrize("implementation", WITHOUT_TRITON)
def test_products_run_in_the_dtype_asked_for(
    implementation: neumf_loss.Implementation, generator: torch.Generator
) -> None:
    inputs = make_inputs(Shape(), generator, scale=0.3, dtype=torch.float32)
    item_index_BK = make_samples(Shape(), generator).item_index_BK
    exact = reference.logits(moved(inputs, torch.float64), item_index_BK)
    fine, rough = (
        neumf_loss.logits(inputs, item_index_BK, compute_dtype=dtype, implementation=implementation)
        for dtype in (None, torch.bfloat16)
    )
    errors = [float((found.double() - exact).detach().abs().max()) for found in (fine, rough)]
    assert errors[0] < 1e-6
    assert 1e-4 < errors[1] < 1e-1


def test_a_cpu_scores_in_chunks(generator: torch.Generator) -> None:
    inputs = make_inputs(Shape(), generator, dtype=torch.float32)
    item_index_BK = make_samples(Shape(), generator).item_index_BK
    found = neumf_loss.logits(inputs, item_index_BK)
    assert torch.equal(found, chunked.logits(inputs, item_index_BK))
    assert torch.equal(neumf_loss.catalogue_logits(inputs), chunked.catalogue_logits(inputs))


@pytest.mark.skipif(not triton_support.is_installed(), reason="Triton is not installed here")
@pytest.mark.parametrize(
    ("capability", "shared_bytes", "widths", "fits"),
    [
        ((8, 0), 164 << 10, (256, 128, 64), False),
        ((8, 0), 164 << 10, (128, 64), True),
        ((9, 0), 228 << 10, (256, 128, 64), True),
    ],
)
def test_the_tower_fits_the_chip(
    capability: tuple[int, int],
    shared_bytes: int,
    widths: tuple[int, ...],
    fits: bool,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NVIDIA's sizes on an A100, where weights are held twice, and on an H100."""
    from foretaste.ops.neumf_loss.triton import loss as triton_loss

    gpu = SimpleNamespace(shared_memory_per_multiprocessor=shared_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    shape = Shape(widths=widths)
    inputs = make_inputs(shape, generator, dtype=torch.float32)
    samples = make_samples(shape, generator)
    monkeypatch.setattr(InteractionInputs, "device", torch.device("cuda", 0))
    assert triton_loss.supports(inputs, samples, torch.bfloat16) == fits
