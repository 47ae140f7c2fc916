"""The interaction written out plainly: the definition of correct, on any device.

Shape suffixes: B rows, K candidates per row, I items, F factors, H and D tower widths.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.dropout import keep_mask, keep_rate
from foretaste.ops.interaction.types import InteractionInputs, Samples, TowerDropout, layer_key


def logits(
    inputs: InteractionInputs, item_index_BK: Tensor, dropout: TowerDropout | None = None
) -> Tensor:
    """Logits [B, K] of each row's candidates."""
    flat_index = item_index_BK.reshape(-1)
    shape_BK = item_index_BK.shape
    item_tower = inputs.item_tower_IH.index_select(0, flat_index).view(
        *shape_BK, inputs.item_tower_IH.shape[1]
    )
    activation = _dropped(F.relu(inputs.user_tower_BH[:, None] + item_tower), dropout, 0)
    for number, (weight, bias) in enumerate(inputs.layers, start=1):
        activation = _dropped(F.relu(F.linear(activation, weight, bias)), dropout, number)
    item_product = inputs.item_product_IF.index_select(0, flat_index).view(
        *shape_BK, inputs.item_product_IF.shape[1]
    )
    product = inputs.user_product_BF[:, None] * item_product
    return (
        product @ inputs.output_product_F
        + activation @ inputs.output_tower_D
        + inputs.output_bias_1
    )


def loss(
    inputs: InteractionInputs, samples: Samples, dropout: TowerDropout | None = None
) -> Tensor:
    """Weighted sum of the samples' binary cross-entropies, a scalar (He et al. 2017, eq. 7)."""
    logits_BK = logits(inputs, samples.item_index_BK, dropout)
    label_BK = samples.label_BK.expand_as(logits_BK).to(logits_BK.dtype)
    losses_BK = F.binary_cross_entropy_with_logits(logits_BK, label_BK, reduction="none")
    return (samples.weight_BK.to(logits_BK.dtype) * losses_BK).sum()


def _dropped(activation: Tensor, dropout: TowerDropout | None, layer: int) -> Tensor:
    if dropout is None or dropout.rate == 0.0:
        return activation
    *samples, width = activation.shape
    key = layer_key(dropout, layer)
    keep = keep_mask(key, 0, math.prod(samples), width, dropout.rate, activation.device)
    return torch.where(keep.view_as(activation), activation / keep_rate(dropout.rate), 0.0)
