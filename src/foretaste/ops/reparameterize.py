"""The reparameterization trick of variational autoencoders, and their divergence from the prior.

Gradients are written out: left to autograd they are twice the passes over memory.

Shape suffixes: B users, L latent width, C twice that, M components of a mixture.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.precomputed_gradients import with_gradients

_STANDARD_SHARE, _EARLIER_SHARE, _WIDE_SHARE = 3 / 20, 3 / 4, 1 / 10
_WIDE_LOG_VARIANCE = 10.0


class _Reparameterize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, code_BC: Tensor, noise_BL: Tensor, weight_B: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        mean_BL, log_variance_BL = code_BC.chunk(2, dim=1)

        deviation_BL = (0.5 * log_variance_BL).exp_()
        ctx.save_for_backward(mean_BL, deviation_BL, noise_BL, weight_B)  # type: ignore[arg-type]
        # Zeros would be made and added if the divergence, or the sample, is not requested.
        ctx.set_materialize_grads(False)
        # KL(N(m, s²) || N(0, 1)) = (s² + m² - log s² - 1) / 2 for each coordinate.
        divergence_BL = torch.addcmul(deviation_BL.square(), mean_BL, mean_BL)
        divergence_BL.sub_(log_variance_BL).sub_(1.0)
        if weight_B is None:
            divergence = 0.5 * divergence_BL.sum()
        else:
            divergence = 0.5 * torch.dot(weight_B, divergence_BL.sum(1))
        return torch.addcmul(mean_BL, noise_BL, deviation_BL), divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *upstream: Tensor | None) -> Gradients:
        latent_BL, divergence = upstream
        mean_BL, deviation_BL, noise_BL, weight_B = ctx.saved_tensors
        if latent_BL is None:
            latent_BL = torch.zeros_like(noise_BL)
        # z = m + e s with s = exp(v / 2): dz/dm = 1 and dz/dv = e s / 2. The half comes last.
        spread_BL = (latent_BL * noise_BL).mul_(deviation_BL)
        if divergence is None:
            return torch.cat((latent_BL, spread_BL.mul_(0.5)), dim=1), None, None
        if weight_B is not None:
            divergence = divergence * weight_B[:, None]
        # dKL/dm = m and dKL/dv = (s² - 1) / 2, for v the log variance.
        spread_BL.addcmul_(deviation_BL.square().sub_(1.0), divergence).mul_(0.5)
        mean_gradient_BL = torch.addcmul(latent_BL, mean_BL, divergence)
        return torch.cat((mean_gradient_BL, spread_BL), dim=1), None, None


def reparameterize(
    code_BC: Tensor, noise_BL: Tensor, weight_B: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return latent vectors [B, L] and the users' summed divergence from N(0, 1), a scalar.

    ``weight_B`` weighs the users in that sum, which else count alike. ``code_BC`` is the means,
    then the log-variances. The vectors are ``mean + noise * deviation`` (Kingma & Welling 2014,
    section 2.4), the divergence KL(N(mean, variance) || N(0, 1)) (appendix B); differentiable once
    with respect to ``code_BC``.
    """
    result = _Reparameterize.apply(code_BC, noise_BL, weight_B)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor], result)


def divergence_from_mixture(
    latent_BL: Tensor,
    code_BC: Tensor,
    noise_BL: Tensor,
    earlier_BC: Tensor,
    weight_B: Tensor,
) -> Tensor:
    """Return ``sum_u weight_u (log q(z_u) - log p(z_u))``, a scalar, from one sample of each user.

    ``latent_BL`` is z, the sample that `reparameterize` drew from q by code and noise. Every
    coordinate of the prior p is a mixture of 3/20 N(0, 1), 3/4 of the posterior that
    ``earlier_BC`` encodes and 1/10 N(0, e^10): RecVAE's (Shenbin et al. 2020, section 3.3, with the
    weights of its code). Differentiable once with respect to latent and code.
    """
    log_variance_BL = code_BC.chunk(2, dim=1)[1]
    inputs = latent_BL, log_variance_BL
    with torch.no_grad():
        earlier_mean_BL, earlier_log_variance_BL = earlier_BC.chunk(2, dim=1)
        precision_BL = earlier_log_variance_BL.neg().exp_()
        offset_BL = latent_BL - earlier_mean_BL
        square_BL, wide_precision = latent_BL.square(), math.exp(-_WIDE_LOG_VARIANCE)
        earlier_BL = torch.addcmul(earlier_log_variance_BL, offset_BL.square(), precision_BL)
        wide = math.log(_WIDE_SHARE) - 0.5 * _WIDE_LOG_VARIANCE
        # but for the logarithm of 2 pi, which cancels
        log_density_MBL = torch.stack(
            [
                math.log(_STANDARD_SHARE) - 0.5 * square_BL,
                math.log(_EARLIER_SHARE) - 0.5 * earlier_BL,
                wide - 0.5 * wide_precision * square_BL,
            ]
        )
        # log p, and log q of z = m + e s: -(e² + log s²) / 2 without its constant.
        prior_BL = log_density_MBL.logsumexp(0)
        posterior_BL = (noise_BL.square() + log_variance_BL).mul_(-0.5)
        value = torch.dot(weight_B, (posterior_BL - prior_BL).sum(1))
        # d(-log p)/dz: each component's share of the density times its own slope.
        share_MBL = log_density_MBL.sub_(prior_BL).exp_()
        slope_BL = offset_BL.mul_(precision_BL).mul_(share_MBL[1])
        slope_BL.addcmul_(latent_BL, share_MBL[0].add_(share_MBL[2], alpha=wide_precision))
        # d log q / dv = -1/2 for v the log variance, because the noise stays. Backward scales
        # gradients in place, so the expanded one becomes memory of its own.
        weight_B1 = weight_B[:, None]
        gradients = [slope_BL.mul_(weight_B1), (-0.5 * weight_B1).expand_as(slope_BL).clone()]
    return with_gradients(value, inputs, gradients)
