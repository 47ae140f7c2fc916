"""Inputs of the interaction operations, and what is made of their logits.

Shape suffixes: B rows (users), K candidates per row, I items, F factors of the element-wise
product, N negatives of a row, H width after the tower's split first layer, D width of the tower's
last layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.limits import LIMITS, Limits
from foretaste.ops.random import Purpose, from_row, stream_keys

_LARGEST_EXPONENT = 100
_FLOAT32_BIAS = 127
_FLOAT32_MANTISSA_BITS = 23


@dataclass(frozen=True, eq=False)
class InteractionInputs:
    """NeuMF after its gathers and first projections; a width of zero leaves that side out.

    The logit of user row b and item i, with ``x`` the tower's last activation, is::

        z_0 = relu(user_tower_BH[b] + item_tower_IH[i])
        z_n = relu(W_n @ z_(n-1) + b_n),  x = z_last
        logit = output_product_F . (user_product_BF[b] * item_product_IF[i])
              + output_tower_D . x + output_bias_1

    with dropout after each relu. ``hidden`` is W_1 [out, in], b_1 [out], W_2, b_2...
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
    def limits(self) -> Limits:
        return LIMITS[self.device.type]

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
        """Return every tensor, in the order of the fields."""
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


def with_item_scores(inputs: InteractionInputs, score_I: Tensor) -> InteractionInputs:
    """Return the inputs whose logits have the items' ``score_I`` added, as one more factor."""
    items_IF = torch.cat([inputs.item_product_IF, score_I[:, None]], dim=1)
    output_F = F.pad(inputs.output_product_F, (0, 1), value=1.0)
    inputs = replace(inputs, item_product_IF=items_IF, output_product_F=output_F)
    return with_users(inputs, inputs.user_product_BF, inputs.user_tower_BH)


def with_users(
    inputs: InteractionInputs, product_BF: Tensor, tower_BH: Tensor
) -> InteractionInputs:
    """Return the inputs of other users; a factor that `with_item_scores` added to items is 1."""
    if num_more := inputs.item_product_IF.shape[1] - product_BF.shape[1]:
        product_BF = F.pad(product_BF, (0, num_more), value=1.0)
    return replace(inputs, user_product_BF=product_BF, user_tower_BH=tower_BH)


def linear(
    input_BN: Tensor, weight_MN: Tensor, bias_M: Tensor | None, dtype: torch.dtype | None
) -> Tensor:
    """Return a differentiable linear layer computed in ``dtype``; None means as it comes."""
    if dtype is None:
        return F.linear(input_BN, weight_MN, bias_M)
    bias_M = None if bias_M is None else bias_M.to(dtype)
    return F.linear(input_BN.to(dtype), weight_MN.to(dtype), bias_M)


@dataclass(frozen=True)
class Objective:
    """A loss of logits.

    ``bce`` is every sample's binary cross-entropy (He et al. 2017, eq. 7). ``softmax`` is the
    cross-entropy of a row's positive, its first candidate, among all its candidates. The weights of
    a row add up to the weight of its loss, and negatives of weight zero are left out.
    """

    name: Literal["bce", "softmax"] = "bce"

    negative_shift: float = 0.0
    """Added to the logits of softmax's negatives: the logarithm of how many items each
    represents."""

    def loss(self, logits_BK: Tensor, label_BK: Tensor, weight_BK: Tensor) -> Tensor:
        """Return the weighted sum over rows, a differentiable scalar: the plain definition."""
        weight_BK = weight_BK.to(logits_BK.dtype).expand_as(logits_BK)
        if self.name == "bce":
            label_BK = label_BK.expand_as(logits_BK).to(logits_BK.dtype)
            losses_BK = F.binary_cross_entropy_with_logits(logits_BK, label_BK, reduction="none")
            return (weight_BK * losses_BK).sum()
        positive_B, negative_BN = logits_BK[:, 0], logits_BK[:, 1:]
        negative_BN = negative_BN.masked_fill(weight_BK[:, 1:] == 0.0, float("-inf"))
        logits_BK = torch.cat([positive_B[:, None], negative_BN + self.negative_shift], dim=1)
        loss_B = torch.logsumexp(logits_BK, dim=1) - positive_B
        return (weight_BK.sum(1) * loss_B).sum()

    def with_slopes(
        self, logits_BK: Tensor, label_BK: Tensor, weight_BK: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return `loss` and its gradient by the logits [B, K], which are overwritten."""
        if self.name == "bce":
            # -y log s(z) - (1 - y) log(1 - s(z)) = softplus(z) - y z, for s the sigmoid: no
            # logarithm of 0.
            losses_BK = F.softplus(logits_BK) - logits_BK * label_BK
            # d/dz (softplus(z) - y z) = sigmoid(z) - y.
            slope_BK = (logits_BK.sigmoid_() - label_BK).mul_(weight_BK)
            return (weight_BK * losses_BK).sum(), slope_BK
        row_weight_B = weight_BK.sum(1, dtype=logits_BK.dtype)
        if weight_BK.stride(1):  # else all weights of a row are equal, and only their sum counts
            logits_BK[:, 1:].masked_fill_(weight_BK[:, 1:] == 0.0, float("-inf"))
        if self.negative_shift:
            logits_BK[:, 1:] += self.negative_shift
        logits_BK = torch.log_softmax(logits_BK, dim=1)
        # The minus makes a copy; `exp_` below writes over the column.
        loss_B = -logits_BK[:, 0]
        # d/dz_k of -log softmax(z)_0 is softmax(z)_k, less 1 for k = 0, the positive.
        logits_BK.exp_()[:, 0] -= 1.0
        return (row_weight_B * loss_B).sum(), logits_BK.mul_(row_weight_B[:, None])


BCE = Objective()


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of the loss: for each row its candidates, their labels and their weights.

    ``item_index_BK`` integer; ``label_BK`` in {0, 1} and ``weight_BK`` float32, both of that shape
    or broadcast to it. The loss is the weighted *sum* over samples: give 1 / count for a mean.
    ``objective`` is the loss of their logits.
    """

    item_index_BK: Tensor
    label_BK: Tensor
    weight_BK: Tensor
    objective: Objective = BCE


@dataclass(frozen=True)
class TowerDropout:
    """Dropout in the tower: its rate and the key of this step's random words."""

    rate: float
    key: int | Tensor
    """A tensor if the step is recorded once and replayed with other keys."""

    first_sample: int | Tensor = 0
    """Samples of the whole batch before these, which may be a slice of its rows."""


def layer_keys(dropout: TowerDropout, num_layers: int, device: torch.device) -> Tensor:
    """Return the streams of the layers' decisions about these samples, int64 [num_layers]."""
    layers = torch.arange(num_layers, device=device)
    return from_row(stream_keys(dropout.key, Purpose.DROPOUT, layers), dropout.first_sample)


def loss_scale_of(weight_BK: Tensor) -> Tensor:
    """Return the power of two that takes the top weight to [0.5, 1), and its inverse: float32 [2].

    Gradients are scaled by it in float16, which has no room for weights of 1 / samples.
    """
    if weight_BK.numel() == 0:
        return weight_BK.new_ones(2)
    # A power of two changes exponents alone, so scaling and scaling back round nothing. Its bits in
    # float32 are the exponent plus a bias, moved past the mantissa: nothing waits for the device.
    exponent = torch.frexp(weight_BK.abs().amax().float()).exponent.clamp(
        -_LARGEST_EXPONENT, _LARGEST_EXPONENT
    )
    exponents = torch.stack([-exponent, exponent]).add_(_FLOAT32_BIAS)
    return exponents.bitwise_left_shift_(_FLOAT32_MANTISSA_BITS).view(torch.float32)
