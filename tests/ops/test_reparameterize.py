"""Drawn latent vectors and their divergence against autograd and `torch.distributions`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from foretaste.ops.reparameterize import reparameterize


@pytest.fixture
def code(generator: torch.Generator) -> Tensor:
    return torch.randn(7, 10, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.fixture
def noise(generator: torch.Generator) -> Tensor:
    return torch.randn(7, 5, generator=generator, dtype=torch.float64)


USERS = torch.tensor([0.0, 1.0, 0.5, 3.0, 0.1, 2.0, 7.0], dtype=torch.float64)


def plain(code: Tensor, noise: Tensor, weight_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
    mean_BL, log_variance_BL = code.chunk(2, dim=1)
    posterior = Normal(mean_BL, (0.5 * log_variance_BL).exp())
    divergence_BL = kl_divergence(posterior, Normal(0.0, 1.0))
    if weight_B is not None:
        divergence_BL = weight_B[:, None] * divergence_BL
    return mean_BL + noise * posterior.stddev, divergence_BL.sum()


@pytest.mark.parametrize("weight_B", [None, USERS], ids=["alike", "weighted"])
@pytest.mark.parametrize("uses", [("vectors", "divergence"), ("vectors",), ("divergence",)])
def test_values_and_gradients(
    code: Tensor,
    noise: Tensor,
    generator: torch.Generator,
    weight_B: Tensor | None,
    uses: tuple[str, ...],
) -> None:
    upstream_BL = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    values, gradients = [], []
    for form in (reparameterize, plain):
        latent_BL, divergence = form(code, noise, weight_B)
        values.append((latent_BL, divergence))
        parts = {
            "vectors": (latent_BL * upstream_BL).sum(),
            "divergence": 0.3 * divergence,
        }
        loss = torch.stack([parts[name] for name in uses]).sum()
        gradients.append(torch.autograd.grad(loss, code)[0])
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*gradients)


def test_a_divergence_without_use_spoils_nothing(noise: Tensor) -> None:
    """The gradient of the divergence overflows here."""
    code = torch.full((7, 10), 800.0, requires_grad=True)
    latent_BL, divergence = reparameterize(code, torch.zeros_like(noise, dtype=torch.float32))
    latent_BL[:, :2].sum().backward()
    assert math.isinf(divergence.item())
    assert code.grad is not None
    assert code.grad[:, :5].isfinite().all()
