"""The multinomial log-likelihood of histories over the catalogue: the loss of VAEs and SASRec.

A step of SASRec is a user with one item.

`reference` is the definition; `chunked` never keeps the [users, items] logits; `sampled` is an
approximation that does not compute all of them.

Shape suffixes: B users, I items, D width of the last hidden layer.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from foretaste.ops.buffers import Buffers
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.softmax_loss import chunked, reference
from foretaste.ops.softmax_loss.chunked import logits_bytes as logits_bytes

Implementation = Literal["reference", "chunked", "triton"]


def loss(
    hidden_BD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
    *,
    scale: float = 1.0,
    compute_dtype: torch.dtype | None = None,
    buffers: Buffers | None = None,
    implementation: Implementation = "chunked",
) -> Tensor:
    """Return ``-scale * sum_ui x_ui log softmax(W h_u + b)_i``, a scalar: `reference.loss`.

    Args:
        hidden_BD: the last hidden layer, in the dtype of ``weight_ID`` and ``bias_I`` or of the
            products.
        targets: the histories x of the B users; one without items adds 0.
        compute_dtype: of the products and of the logits between them; the weights' by default. The
            reference knows only the weights'.
        buffers: where to keep large memory from one call to the next.
        implementation: ``reference`` keeps the [B, I] logits; ``chunked`` works through chunks of
            users and is differentiable once; ``triton`` is that with one kernel between the
            products, for CUDA tensors.
    """
    assert weight_ID.shape == (targets.num_items, hidden_BD.shape[1]), "one row per item"
    assert len(hidden_BD) == len(targets), "one hidden row per user"
    if implementation == "reference":
        return scale * reference.loss(hidden_BD.to(weight_ID.dtype), weight_ID, bias_I, targets)
    return chunked.loss(
        hidden_BD,
        weight_ID,
        bias_I,
        targets,
        scale=scale,
        compute_dtype=compute_dtype,
        buffers=buffers,
        implementation=implementation,
    )
