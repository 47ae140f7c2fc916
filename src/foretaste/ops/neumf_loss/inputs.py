"""Inputs of the interaction operations.

Shape suffixes: B rows (users), K candidates per row, I items, F factors of the element-wise
product, H width after the tower's split first layer, D width of the tower's last layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foretaste.ops.random import Purpose, from_row, stream_keys

_LARGEST_EXPONENT = 100
_FLOAT32_BIAS = 127
_FLOAT32_MANTISSA_BITS = 23


@dataclass(frozen=True, eq=False)
class InteractionInputs:
    """NeuMF after its gathers and first projections; a width of zero leaves that side out.

    The logit of user row b and item i, with ``x`` the tower's last activation, is::

        z_0 = relu(user_tower_BH[b] + item_tower_IH[i])
        z_n = relu(hidden[n - 1].weight @ z_(n-1) + hidden[n - 1].bias),  x = z_last
        logit = output_product_F . (user_product_BF[b] * item_product_IF[i])
              + output_tower_D . x + output_bias_1

    with dropout after each relu. ``hidden`` is a flat tuple: weight [out, in], bias [out], ...
    """

    user_product_BF: Tensor
    item_product_IF: Tensor
    user_tower_BH: Tensor
    item_tower_IH: Tensor
    output_product_F: Tensor
    output_tower_D: Tensor
    output_bias_1: Tensor
    hidden: tuple[Tensor, ...]

    @property
    def device(self) -> torch.device:
        return self.output_bias_1.device

    @property
    def num_rows(self) -> int:
        return self.user_product_BF.shape[0]

    @property
    def num_items(self) -> int:
        return self.item_product_IF.shape[0]

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """The tower's layers after the first: (weight, bias) pairs."""
        return list(zip(self.hidden[::2], self.hidden[1::2], strict=True))

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, in the order of the fields."""
        return (
            self.user_product_BF,
            self.item_product_IF,
            self.user_tower_BH,
            self.item_tower_IH,
            self.output_product_F,
            self.output_tower_D,
            self.output_bias_1,
            *self.hidden,
        )

    @classmethod
    def of(cls, tensors: tuple[Tensor, ...]) -> InteractionInputs:
        """From `tensors`."""
        users, items, user_tower, item_tower, product, tower, bias, *hidden = tensors
        return cls(users, items, user_tower, item_tower, product, tower, bias, tuple(hidden))


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of the loss: for each row its candidates, their labels and their weights.

    ``item_index_BK`` integer; ``label_BK`` in {0, 1} and ``weight_BK`` float32, both of that shape
    or broadcast to it. The loss is the weighted *sum* over samples: give 1 / count for a mean.
    """

    item_index_BK: Tensor
    label_BK: Tensor
    weight_BK: Tensor


@dataclass(frozen=True)
class TowerDropout:
    """Dropout in the tower: its rate and the key of this step's random words."""

    rate: float
    key: int | Tensor
    """A tensor where the step is to be recorded once and replayed with other keys."""

    first_sample: int | Tensor = 0
    """Samples of the whole batch before these, which may be a slice of its rows."""


def layer_keys(dropout: TowerDropout, num_layers: int, device: torch.device) -> Tensor:
    """The streams of the layers' decisions about these samples, int64 [num_layers]."""
    layers = torch.arange(num_layers, device=device)
    return from_row(stream_keys(dropout.key, Purpose.DROPOUT, layers), dropout.first_sample)


def loss_scale_of(weight_BK: Tensor) -> Tensor:
    """The power of two that brings the largest weight to [0.5, 1), and its inverse: float32 [2].

    Gradients are scaled by it in float16, which has no room for weights of 1 / samples.
    """
    if weight_BK.numel() == 0:
        return weight_BK.new_ones(2)
    exponent = torch.frexp(weight_BK.abs().amax().float()).exponent.clamp(
        -_LARGEST_EXPONENT, _LARGEST_EXPONENT
    )
    exponents = torch.stack([-exponent, exponent]).add_(_FLOAT32_BIAS)
    return exponents.bitwise_left_shift_(_FLOAT32_MANTISSA_BITS).view(torch.float32)
