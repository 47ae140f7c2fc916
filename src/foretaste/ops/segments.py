"""Sums of rows by index, in a fixed order and without atomics.

``index_add_`` on the CPU adds row after row into memory and on a GPU races; sorting the indexes
once and summing each segment writes every row once, in the same order every time.

Shape suffixes: S rows to sum, D their width, I rows of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class Segments:
    """Rows grouped by the index they belong to; sorted once, used for several sums.

    ``index_S`` integer and not negative; rows of ``num_segments`` and above belong nowhere.
    """

    def __init__(self, index_S: Tensor, num_segments: int) -> None:
        sorted_S, self.order_S = torch.sort(index_S, stable=True)
        bounds = torch.arange(num_segments + 1, dtype=index_S.dtype, device=index_S.device)
        self.offsets = torch.searchsorted(sorted_S, bounds)

    def sum(self, rows_SD: Tensor) -> Tensor:
        """The sum of the rows of each index, [I, D] of the rows' dtype, added up in float32."""
        if rows_SD.shape[1] == 0:
            return rows_SD.new_zeros(len(self.offsets) - 1, 0)
        return F.embedding_bag(
            self.order_S, rows_SD, self.offsets, mode="sum", include_last_offset=True
        )
