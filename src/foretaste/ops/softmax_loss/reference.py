"""The multinomial negative log-likelihood written out plainly, and as TorchInductor compiles that.

Shape suffixes: B users, N their interactions, I items, D width of the last hidden layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.histories import HistoryTensors


def loss(hidden_BD: Tensor, weight_ID: Tensor, bias_I: Tensor, targets: HistoryTensors) -> Tensor:
    """Sum over users of ``-sum_i x_i log softmax(W h + b)_i`` (Liang et al. 2018, eq. 2).

    x is 1 for the items of ``targets`` and 0 elsewhere; a user without items adds 0.
    """
    log_probability_BI = F.log_softmax(F.linear(hidden_BD, weight_ID, bias_I), dim=1)
    return -(log_probability_BI * targets.to_dense().to(log_probability_BI.dtype)).sum()


def compiled_loss(
    hidden_BD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
    dtype: torch.dtype,
) -> Tensor:
    """As `loss`, compiled; the output layer in ``dtype``, what follows in the weights'.

    Compiled on the first call, for tens of seconds, and for every batch size at once. The [B, I]
    logits are kept. Entries beyond the last offset are padding.
    """
    entry_N = torch.arange(targets.item_index.numel(), device=targets.device)
    row_N = torch.searchsorted(targets.offsets, entry_N, right=True) - 1
    counts_N = row_N < len(targets)
    position_N = torch.where(counts_N, row_N * targets.num_items + targets.item_index, 0)
    value: Tensor = _compiled()(
        hidden_BD, weight_ID, bias_I, targets.lengths(), position_N, counts_N, dtype
    )
    return value


@cache
def _compiled() -> Callable[..., Tensor]:
    def negative_log_likelihood(
        hidden_BD: Tensor,
        weight_ID: Tensor,
        bias_I: Tensor,
        length_B: Tensor,
        position_N: Tensor,
        counts_N: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        logits_BI = F.linear(hidden_BD.to(dtype), weight_ID.to(dtype), bias_I.to(dtype))
        logits_BI = logits_BI.to(weight_ID.dtype)
        chosen_N = logits_BI.flatten().index_select(0, position_N)
        return (length_B * logits_BI.logsumexp(1)).sum() - (chosen_N * counts_N).sum()

    return torch.compile(negative_log_likelihood, dynamic=True)
