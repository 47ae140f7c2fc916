"""Operations that find their value and their gradients in one pass, and give the latter away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _GivenGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor | None], *inputs: Tensor) -> Tensor:
        ctx.gradients, ctx.dtypes = gradients, [tensor.dtype for tensor in inputs]
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        gradients = [ctx.gradients.pop(0) for _ in range(len(ctx.gradients))]
        if not gradients:
            raise RuntimeError("the gradients of this loss were given away by an earlier backward")
        if not _is_one(upstream[0]):
            for gradient in gradients:
                if gradient is not None:
                    gradient *= upstream[0]
        pairs = zip(gradients, ctx.dtypes, strict=True)
        return None, None, *(None if one is None else one.to(dtype) for one, dtype in pairs)


def giving_gradients(
    value: Tensor, inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> Tensor:
    """The scalar ``value``, whose gradient for each of ``inputs`` is already known.

    Backward scales the gradients in place and hands them over without a copy, so it works once:
    what fills tables of gigabytes is neither kept nor written twice. A second one raises
    RuntimeError. A gradient may be of a wider dtype than its input, until it is scaled.
    """
    result = _GivenGradients.apply(value, list(gradients), *inputs)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


def _is_one(upstream: Tensor) -> bool:
    """Whether scaling can be spared; asked only where asking does not stall the device."""
    return upstream.device.type == "cpu" and upstream.item() == 1.0
