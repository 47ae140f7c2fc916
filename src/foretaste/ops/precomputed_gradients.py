"""Losses whose gradients are computed together with their value and handed over at backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.autograd import Context, Gradients


class _PrecomputedContext(Context):
    gradients: list[Tensor | None]
    dtypes: list[torch.dtype]


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _PrecomputedContext, value: Tensor, gradients: list[Tensor | None], *inputs: Tensor
    ) -> Tensor:
        ctx.gradients, ctx.dtypes = gradients, [tensor.dtype for tensor in inputs]
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: _PrecomputedContext, *upstream: Tensor) -> Gradients:
        gradients, ctx.gradients = ctx.gradients, []
        # reading the factor would stall a GPU, so a GPU always multiplies
        if upstream[0].device.type != "cpu" or upstream[0].item() != 1.0:
            for gradient in gradients:
                if gradient is not None:
                    gradient *= upstream[0]
        pairs = zip(gradients, ctx.dtypes, strict=True)
        return None, None, *(None if one is None else one.to(dtype) for one, dtype in pairs)


def with_gradients(
    value: Tensor, inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> Tensor:
    """Return the scalar ``value``, whose gradient for each of ``inputs`` is already known.

    Backward scales the gradients in place and hands them over without a copy, so it works once.
    Gradients of gigabytes are neither kept nor copied. A gradient may have a wider dtype than its
    input until backward.
    """
    result = _WithGradients.apply(value, list(gradients), *inputs)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)
