"""The interaction written out plainly: the definition of correct, on any device.

`compiled_loss` is that as TorchInductor compiles it: fused loops around library products.

Shape suffixes: B rows, K candidates per row, I items, F factors, H and D tower widths, W the width
of some layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.dropout import keep_mask, keep_rate
from foretaste.ops.neumf_loss.inputs import (
    InteractionInputs,
    Objective,
    Samples,
    TowerDropout,
    layer_keys,
)
from foretaste.ops.segments import gather


def logits(
    inputs: InteractionInputs, item_index_BK: Tensor, dropout: TowerDropout | None = None
) -> Tensor:
    """Logits [B, K] of each row's candidates."""
    product_BKF, tower_BKH = (
        table.index_select(0, item_index_BK.reshape(-1)).view(*item_index_BK.shape, table.shape[1])
        for table in (inputs.item_product_IF, inputs.item_tower_IH)
    )
    factors = dropout_factors(inputs, dropout, item_index_BK.shape, tower_BKH.dtype)
    return logits_of_rows(inputs, product_BKF, tower_BKH, factors)


def loss(
    inputs: InteractionInputs, samples: Samples, dropout: TowerDropout | None = None
) -> Tensor:
    """Weighted sum of the samples' losses, a scalar."""
    logits_BK = logits(inputs, samples.item_index_BK, dropout)
    return samples.objective.loss(logits_BK, samples.label_BK, samples.weight_BK)


def logits_of_rows(
    inputs: InteractionInputs, product_BKF: Tensor, tower_BKH: Tensor, factors: list[Tensor]
) -> Tensor:
    """Logits [B, K] from item rows already gathered and `dropout_factors`; none without dropout."""
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


def dropout_factors(
    inputs: InteractionInputs,
    dropout: TowerDropout | None,
    shape_BK: torch.Size,
    dtype: torch.dtype,
) -> list[Tensor]:
    """Factors [B, K, W] of each layer's activations: 0 or 1 / keep rate; none without dropout."""
    if dropout is None or dropout.rate == 0.0:
        return []
    widths = [inputs.item_tower_IH.shape[1], *(weight.shape[0] for weight, _ in inputs.layers)]
    rate, num_samples = dropout.rate, shape_BK.numel()
    keys_L = layer_keys(dropout, len(widths), inputs.device)
    masks = (
        keep_mask(key, num_samples, width, rate, inputs.device)
        for key, width in zip(keys_L, widths, strict=True)
    )
    scale = 1.0 / keep_rate(rate)
    return [mask.view(*shape_BK, mask.shape[1]).to(dtype) * scale for mask in masks]


def compiled_loss(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `loss`, differentiable once; the tower in ``compute_dtype``, sums in float32.

    Compiled on the first call, for tens of seconds, and for every batch size at once. Nothing is
    chunked: a batch's activations are all kept for backward.
    """
    # Outside stay the gathers, whose gradients are summed in a fixed order, and the random words of
    # dropout: compiled for CPUs, their 64-bit integer hash comes out wrong in about one of a
    # hundred decisions (torch 2.13).
    dtype = compute_dtype or inputs.item_tower_IH.dtype
    index_BK = samples.item_index_BK
    product, tower = gather(
        index_BK.reshape(-1), inputs.item_product_IF, inputs.item_tower_IH.to(dtype)
    )
    value: Tensor = _compiled(samples.objective)(
        inputs.tensors(),
        product.view(*index_BK.shape, product.shape[1]),
        tower.view(*index_BK.shape, tower.shape[1]),
        samples.label_BK,
        samples.weight_BK,
        dropout_factors(inputs, dropout, index_BK.shape, dtype),
    )
    return value


@cache
def _compiled(objective: Objective) -> Callable[..., Tensor]:
    def loss_of_rows(
        tensors: tuple[Tensor, ...],
        product_BKF: Tensor,
        tower_BKH: Tensor,
        label_BK: Tensor,
        weight_BK: Tensor,
        factors: list[Tensor],
    ) -> Tensor:
        dtype = tower_BKH.dtype
        users, items, user_tower, item_tower, product, tower, bias, *hidden = tensors
        hidden = [tensor.to(dtype) for tensor in hidden]
        inputs = InteractionInputs.of(
            (users, items, user_tower.to(dtype), item_tower, product, tower, bias, *hidden)
        )
        logits_BK = logits_of_rows(inputs, product_BKF, tower_BKH, factors)
        return objective.loss(logits_BK, label_BK, weight_BK)

    return torch.compile(loss_of_rows, dynamic=True)
