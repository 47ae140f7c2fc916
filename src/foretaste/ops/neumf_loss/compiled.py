"""The interaction's plain form as TorchInductor compiles it: fused loops around library products.

Compiled on the first call, for tens of seconds, and for every batch size at once. Nothing is
chunked: a batch's activations are all kept for backward. What stays outside are the gathers, whose
gradients are summed in a fixed order, and the random words of dropout: compiled for CPUs, their
64-bit integer hash comes out wrong in about one of a hundred decisions (torch 2.13).

Shape suffixes: B rows, K candidates per row, F factors, H width after the first layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from foretaste.ops.gather import gather
from foretaste.ops.neumf_loss import reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout


def loss(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `reference.loss`, differentiable once; the tower in ``compute_dtype``, sums in float32."""
    dtype = compute_dtype or inputs.item_tower_IH.dtype
    index_BK = samples.item_index_BK
    product, tower = gather(
        index_BK.reshape(-1), inputs.item_product_IF, inputs.item_tower_IH.to(dtype)
    )
    value: Tensor = _compiled()(
        inputs.tensors(),
        product.view(*index_BK.shape, product.shape[1]),
        tower.view(*index_BK.shape, tower.shape[1]),
        samples.label_BK,
        samples.weight_BK,
        reference.dropout_factors(inputs, dropout, index_BK.shape, dtype),
    )
    return value


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(_loss_of_rows, dynamic=True)


def _loss_of_rows(
    tensors: tuple[Tensor, ...],
    product_BKF: Tensor,
    tower_BKH: Tensor,
    label_BK: Tensor,
    weight_BK: Tensor,
    factors: list[Tensor],
) -> Tensor:
    users, items, user_tower, item_tower, product_F, tower_D, bias_1, *hidden = tensors
    dtype = tower_BKH.dtype
    inputs = InteractionInputs(
        user_product_BF=users,
        item_product_IF=items,
        user_tower_BH=user_tower.to(dtype),
        item_tower_IH=item_tower,
        output_product_F=product_F,
        output_tower_D=tower_D,
        output_bias_1=bias_1,
        hidden=tuple(tensor.to(dtype) for tensor in hidden),
    )
    logits_BK = reference.logits_of_rows(inputs, product_BKF, tower_BKH, factors)
    return reference.weighted_losses(logits_BK, label_BK, weight_BK)
