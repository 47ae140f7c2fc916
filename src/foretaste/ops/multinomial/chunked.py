"""The multinomial likelihood in chunks of users: value and gradients in one pass.

A chunk's logits are turned into their own gradient ``n softmax(logits) - x`` in place and consumed
by the two backward products at once, so memory grows with the chunk and not with the batch.

Shape suffixes: B users, c users of a chunk, I items, D width of the last hidden layer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.known_gradients import with_gradients

_LOGITS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 28}


def loss(
    hidden_BD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `reference.loss`, differentiable once; products in ``compute_dtype``, sums in float32."""
    dtype = compute_dtype or hidden_BD.dtype
    with torch.no_grad():
        value, gradients = _loss_and_gradients(hidden_BD, weight_ID, bias_I, targets, dtype)
    return with_gradients(value, (hidden_BD, weight_ID, bias_I), gradients)


def _loss_and_gradients(
    hidden_BD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
    dtype: torch.dtype,
) -> tuple[Tensor, list[Tensor]]:
    product_weight_ID = weight_ID.to(dtype)
    product_hidden_BD = hidden_BD.to(dtype)
    gradients = [torch.zeros_like(tensor) for tensor in (hidden_BD, weight_ID, bias_I)]
    hidden_gradient_BD, weight_gradient_ID, bias_gradient_I = gradients
    value = hidden_BD.new_zeros(())
    rows_at_once = max(1, _LOGITS_AT_ONCE[hidden_BD.device.type] // weight_ID.shape[0])
    for start in range(0, len(targets), rows_at_once):
        stop = min(start + rows_at_once, len(targets))
        hidden_cD = product_hidden_BD[start:stop]
        logits_cI = F.linear(hidden_cD, product_weight_ID).to(hidden_BD.dtype).add_(bias_I)
        chunk_value, slope_cI = _likelihood_and_slope(logits_cI, targets[start:stop])
        value += chunk_value
        bias_gradient_I += slope_cI.sum(0)
        slope_cI = slope_cI.to(dtype)
        hidden_gradient_BD[start:stop] = slope_cI @ product_weight_ID
        weight_gradient_ID += slope_cI.T @ hidden_cD
    return value, gradients


def _likelihood_and_slope(logits_cI: Tensor, targets: HistoryTensors) -> tuple[Tensor, Tensor]:
    """The chunk's loss and the gradient of its logits, written over them."""
    lengths_c1 = targets.lengths()[:, None].to(logits_cI.dtype)
    target_N = targets.row_index() * logits_cI.shape[1] + targets.item_index
    log_total_c1 = logits_cI.logsumexp(dim=1, keepdim=True)
    value = (lengths_c1 * log_total_c1).sum() - logits_cI.view(-1).index_select(0, target_N).sum()
    slope_cI = logits_cI.sub_(log_total_c1).exp_().mul_(lengths_c1)
    slope_cI.view(-1).index_add_(0, target_N, slope_cI.new_full((1,), -1.0).expand(len(target_N)))
    return value, slope_cI
