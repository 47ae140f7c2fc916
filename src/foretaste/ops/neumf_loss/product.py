"""GMF's interaction, which has no tower: value and gradients of a step.

A logit is the product of an item's factors with the row's weighted ones. So logits are a matrix
product, computed for the candidates only. Gradients are sums weighted by the logits' slopes: of
items' factors for each row, and of rows' weighted factors for each item.

Shape suffixes: B rows, K candidates per row, I items, F factors, S samples; b rows of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.dense import candidate_products
from foretaste.ops.limits import LIMITS
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples
from foretaste.ops.segments import Segments, sum_bags


def value_and_gradients(
    inputs: InteractionInputs, samples: Samples
) -> tuple[Tensor, InteractionInputs]:
    """Return the loss and the gradient of every input, block after block of rows."""
    shape, table_IF = samples.item_index_BK.shape, inputs.item_product_IF
    label_BK, weight_BK = samples.label_BK.expand(shape), samples.weight_BK.expand(shape)
    weighted_BF = inputs.user_product_BF * inputs.output_product_F
    by_row_BF, by_item_IF = torch.empty_like(weighted_BF), None
    value, by_bias_1 = table_IF.new_zeros(()), torch.zeros_like(inputs.output_bias_1)
    rows_at_once = max(1, inputs.limits.product_samples // max(1, shape[1]))
    for start in range(0, shape[0], rows_at_once):
        rows = slice(start, start + rows_at_once)
        index_bK = samples.item_index_BK[rows]
        logits_bK = candidate_products(weighted_BF[rows], table_IF, index_bK)
        logits_bK.add_(inputs.output_bias_1)
        loss, slope_bK = samples.objective.with_slopes(logits_bK, label_BK[rows], weight_BK[rows])
        value += loss
        by_bias_1 += slope_bK.sum()
        by_row_BF[rows] = _sums_by_row(table_IF, index_bK, slope_bK)
        if table_IF.requires_grad:
            sums_IF = _sums_by_item(len(table_IF), index_bK, slope_bK, weighted_BF[rows])
            by_item_IF = sums_IF if by_item_IF is None else by_item_IF.add_(sums_IF)
    if by_item_IF is None:  # fixed items need no memory as large as the catalogue
        by_item_IF = torch.zeros_like(table_IF) if table_IF.requires_grad else table_IF.new_empty(0)
    gradients = InteractionInputs(
        user_product_BF=by_row_BF * inputs.output_product_F,
        item_product_IF=by_item_IF,
        user_tower_BH=torch.zeros_like(inputs.user_tower_BH),
        item_tower_IH=torch.zeros_like(inputs.item_tower_IH),
        output_product_F=(by_row_BF * inputs.user_product_BF).sum(0),
        output_tower_D=torch.zeros_like(inputs.output_tower_D),
        output_bias_1=by_bias_1,
        hidden=tuple(torch.zeros_like(tensor) for tensor in inputs.hidden),
    )
    return value, gradients


def _sums_by_row(table_IF: Tensor, index_bK: Tensor, slope_bK: Tensor) -> Tensor:
    """Return the candidates' factors, weighted by slopes and summed for each row: [b, F]."""
    num_rows, num_candidates = slope_bK.shape
    offsets = torch.arange(num_rows + 1, device=slope_bK.device) * num_candidates
    return sum_bags(table_IF, index_bK.reshape(-1), offsets, slope_bK.reshape(-1))


def _sums_by_item(
    num_items: int, index_bK: Tensor, slope_bK: Tensor, weighted_bF: Tensor
) -> Tensor:
    """Return the rows' factors, weighted by slopes and summed for each item: [I, F]."""
    num_rows, num_candidates = slope_bK.shape
    dense_items = LIMITS[slope_bK.device.type].dense_items_per_candidate * num_candidates
    if num_items <= dense_items:
        slope_bI = slope_bK.new_zeros(num_rows, num_items)
        # Added, not set: an item may be drawn twice for a row. On a CPU this repeats bit for bit.
        return slope_bI.scatter_add_(1, index_bK.long(), slope_bK).T @ weighted_bF
    segments = Segments(index_bK.reshape(-1), num_items)
    row_b = torch.arange(num_rows, dtype=torch.int32, device=slope_bK.device)
    row_S = row_b[:, None].expand_as(slope_bK).reshape(-1)
    return segments.sum(weighted_bF, row_S, weight_S=slope_bK.reshape(-1))
