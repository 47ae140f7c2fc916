"""Operations that find their value and their gradients in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _KnownGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, *inputs_then_gradients: Tensor | None) -> Tensor:
        gradients = inputs_then_gradients[len(inputs_then_gradients) // 2 :]
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> Any:
        gradients = ctx.saved_tensors
        scaled = (None if gradient is None else gradient * upstream[0] for gradient in gradients)
        return None, *scaled, *(None for _ in gradients)


def with_gradients(
    value: Tensor, inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> Tensor:
    """The scalar ``value``, whose gradient for each of ``inputs`` is already known.

    Fusing the two spares keeping, or computing again, what lies between value and gradient.
    """
    return cast(Tensor, _KnownGradients.apply(value, *inputs, *gradients))  # type: ignore[no-untyped-call]
