"""The interaction written out plainly: the definition of correct, on any device.

Shape suffixes: B rows, K candidates per row, I items, F factors, H and D tower widths, W the width
of some layer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.dropout import keep_mask, keep_rate
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout, layer_keys


def logits(
    inputs: InteractionInputs, item_index_BK: Tensor, dropout: TowerDropout | None = None
) -> Tensor:
    """Return logits [B, K] of each row's candidates."""
    product_BKF, tower_BKH = (
        table.index_select(0, item_index_BK.reshape(-1)).view(*item_index_BK.shape, table.shape[1])
        for table in (inputs.item_product_IF, inputs.item_tower_IH)
    )
    factors = _dropout_factors(inputs, dropout, item_index_BK.shape, tower_BKH.dtype)
    activation = F.relu(inputs.user_tower_BH[:, None] + tower_BKH)
    activation = activation * factors[0] if factors else activation
    for number, (weight, bias) in enumerate(inputs.layers, start=1):
        activation = F.relu(F.linear(activation, weight, bias))
        activation = activation * factors[number] if factors else activation
    product_BKF = inputs.user_product_BF[:, None] * product_BKF
    return (
        product_BKF @ inputs.output_product_F
        + activation.to(inputs.output_tower_D.dtype) @ inputs.output_tower_D
        + inputs.output_bias_1
    )


def loss(
    inputs: InteractionInputs, samples: Samples, dropout: TowerDropout | None = None
) -> Tensor:
    """Weighted sum of the samples' losses, a scalar."""
    logits_BK = logits(inputs, samples.item_index_BK, dropout)
    return samples.objective.loss(logits_BK, samples.label_BK, samples.weight_BK)


def _dropout_factors(
    inputs: InteractionInputs,
    dropout: TowerDropout | None,
    shape_BK: torch.Size,
    dtype: torch.dtype,
) -> list[Tensor]:
    """Return each layer's dropout factors [B, K, W], 0 or 1 / keep rate; none without dropout."""
    if dropout is None or dropout.rate == 0.0:
        return []
    widths = [inputs.item_tower_IH.shape[1], *(weight.shape[0] for weight, _ in inputs.layers)]
    rate, num_samples = dropout.rate, shape_BK.numel()
    keys_L = layer_keys(dropout, len(widths), inputs.device)
    masks = (
        keep_mask(key, num_samples, width, rate, inputs.device)
        for key, width in zip(keys_L, widths, strict=True)
    )
    # Divided by the keep rate, so that the mean stays and scoring needs no factor.
    scale = 1.0 / keep_rate(rate)
    return [mask.view(*shape_BK, mask.shape[1]).to(dtype) * scale for mask in masks]
