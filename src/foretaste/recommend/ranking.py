"""The best k of many scores, in an order that does not depend on the machine.

Shape suffixes: B rows, C columns, K columns kept, T rows whose last place is tied.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCKED = float("-inf")
"""The score of what must not be listed."""


def top_columns(scores_BC: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Columns int64 [B, K] of the K = min(k, C) best scores of each row, and those scores.

    Best first; equal scores by column, lowest first, also where they compete for the last place:
    ``torch.topk`` promises neither. Blocked columns come last, in any order.
    """
    num_columns = scores_BC.shape[1]
    k = min(k, num_columns)
    # One more than asked tells whether the last place is tied.
    best_BK, column_BK = scores_BC.topk(min(k + 1, num_columns), dim=1)
    if k < num_columns:
        last_B, next_B = best_BK[:, k - 1], best_BK[:, k]
        tied_T = torch.nonzero((last_B == next_B) & (last_B != BLOCKED))[:, 0]
        column_BK = column_BK[:, :k]
        if tied_T.numel():
            column_BK = column_BK.index_copy(
                0, tied_T, _lowest_tied_columns(scores_BC[tied_T], last_B[tied_T, None], k)
            )
    column_BK = column_BK.sort(dim=1).values
    ordered_BK, order_BK = scores_BC.gather(1, column_BK).sort(dim=1, descending=True, stable=True)
    return column_BK.gather(1, order_BK), ordered_BK


def _lowest_tied_columns(scores_TC: Tensor, last_T1: Tensor, k: int) -> Tensor:
    """The k best columns of each row, the lowest of those that share its k-th best score."""
    better_TC = scores_TC > last_T1
    tied_TC = scores_TC == last_T1
    num_tied_T1 = k - better_TC.sum(dim=1, keepdim=True)
    kept_TC = better_TC | (tied_TC & (tied_TC.cumsum(dim=1, dtype=torch.int32) <= num_tied_T1))
    return kept_TC.nonzero()[:, 1].view(-1, k)
