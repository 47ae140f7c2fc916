"""Activations of hidden layers and their slopes, by the fastest kernels."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from foretaste.ops.torch_internals import relu_backward, tanh_backward

Activation = Literal["tanh", "relu"]
Fused = Literal["tanh", "relu", "sigmoid"]
"""What a product can end in."""


def activate_(value: Tensor, activation: Fused | None) -> Tensor:
    """The activation of ``value``, or ``value`` itself, in its place; not differentiable."""
    if activation == "relu":
        return value.relu_()
    if activation == "tanh":
        if value.device.type == "cpu" and value.dtype.itemsize >= 4:
            # to within a rounding of 1; PyTorch's own takes eight times as long
            return value.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)
        return value.tanh_()
    if activation == "sigmoid":
        return value.sigmoid_()
    return value


def slope(upstream: Tensor, result: Tensor, activation: Activation | None) -> Tensor:
    """The gradient of what `activate_` made ``result`` of, in new memory if it is another."""
    if activation == "relu":
        return relu_backward(upstream, result)
    if activation == "tanh":
        return tanh_backward(upstream, result)
    return upstream
