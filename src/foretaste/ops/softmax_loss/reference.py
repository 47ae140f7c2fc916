"""The multinomial negative log-likelihood written out plainly: the definition of correct.

Shape suffixes: B users, I items, D width of the last hidden layer.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.histories import HistoryTensors


def loss(hidden_BD: Tensor, weight_ID: Tensor, bias_I: Tensor, targets: HistoryTensors) -> Tensor:
    """Return the users' sum of ``-sum_i x_i log softmax(W h + b)_i`` (Liang et al. 2018, eq. 2).

    x is 1 for the items of ``targets``, which have no weights, and 0 elsewhere; a user without
    items adds 0.
    """
    log_probability_BI = F.log_softmax(F.linear(hidden_BD, weight_ID, bias_I), dim=1)
    return -(log_probability_BI * targets.to_dense().to(log_probability_BI.dtype)).sum()
