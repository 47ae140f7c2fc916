"""The reparameterization trick of variational autoencoders, and their divergence from the prior.

Both gradients are written out: left to autograd they are twice the passes over memory.

Shape suffixes: B users, L latent width, C twice that.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _Reparameterize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, code_BC: Tensor, noise_BL: Tensor) -> tuple[Tensor, Tensor]:
        mean_BL, log_variance_BL = code_BC.chunk(2, dim=1)
        deviation_BL = (0.5 * log_variance_BL).exp_()
        ctx.save_for_backward(mean_BL, deviation_BL, noise_BL)
        ctx.set_materialize_grads(False)
        divergence_BL = torch.addcmul(deviation_BL.square(), mean_BL, mean_BL)
        divergence = 0.5 * divergence_BL.sub_(log_variance_BL).sub_(1.0).sum()
        return torch.addcmul(mean_BL, noise_BL, deviation_BL), divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        latent_BL, divergence = upstream
        mean_BL, deviation_BL, noise_BL = ctx.saved_tensors
        if latent_BL is None:
            latent_BL = torch.zeros_like(noise_BL)
        spread_BL = (latent_BL * noise_BL).mul_(deviation_BL)
        if divergence is None:
            return torch.cat((latent_BL, spread_BL.mul_(0.5)), dim=1), None
        spread_BL.addcmul_(deviation_BL.square().sub_(1.0), divergence).mul_(0.5)
        return torch.cat((torch.addcmul(latent_BL, mean_BL, divergence), spread_BL), dim=1), None


def reparameterize(code_BC: Tensor, noise_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Latent vectors [B, L] and the sum over users of their divergence from N(0, 1), a scalar.

    ``code_BC`` is the means, then the log-variances. The vectors are ``mean + noise * deviation``
    (Kingma & Welling 2014, section 2.4), the divergence KL(N(mean, variance) || N(0, 1)) (appendix
    B); differentiable once with respect to ``code_BC``.
    """
    result = _Reparameterize.apply(code_BC, noise_BL)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor], result)
