"""From a chunk's logits to its likelihood and slopes, in PyTorch's own operations.

Shape suffixes: B users, c users of a chunk, N their interactions, I items.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS


class Exponentials:
    """The likelihood of one chunk after another, each in place of its logits.

    Args:
        targets: of the whole batch.
        starts: the first user of each chunk.
        sum_dtype: what sums are kept in.
        headroom: the chunk's values are divided by two to this power, and the factors multiplied by
            the same.
    """

    def __init__(
        self,
        targets: HistoryTensors,
        starts: list[int],
        sum_dtype: torch.dtype,
        headroom: int = 0,
    ) -> None:
        self.sum_dtype = sum_dtype
        self.headroom = headroom
        self._count_B = targets.lengths().to(sum_dtype)
        self._row_index_N = targets.row_index()
        self._item_index_N = targets.item_index
        bounds = targets.offsets[[*starts, len(targets)]].tolist()
        self._entries = {a: slice(*bounds[n : n + 2]) for n, a in enumerate(starts)}

    def likelihood_(self, logits_cI: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Return minus the log-likelihood of the chunk in base 2, and the factors ``n / t`` [c].

        ``logits_cI`` are in base 2 and contiguous; afterwards they hold ``e - x t / n``.
        """
        count_c, logits_flat = self._count_B[rows], logits_cI.view(-1)
        row_index_N, position_N = self._positions(rows, logits_cI.shape[1])
        chosen_N = logits_flat.index_select(0, position_N).to(self.sum_dtype)
        highest, totals = [], []
        device = logits_cI.device.type
        num_values = LIMITS[device].exponentials
        if device == "cpu":
            num_values *= torch.get_num_threads()
        rows_at_once = max(1, num_values // max(1, logits_cI.shape[1]))
        for part in torch.split(logits_cI, rows_at_once):
            values = part.to(self.sum_dtype)
            # Less the highest logit no exponential overflows (Blanchard et al. 2021, log-sum-exp).
            highest.append(values.amax(dim=1) + self.headroom)
            values.sub_(highest[-1][:, None]).exp2_()
            totals.append(values.sum(dim=1))
            part.copy_(values)
        highest_c, total_c = torch.cat(highest), torch.cat(totals)
        value = (count_c * (highest_c + total_c.log2())).sum() - chosen_N.sum()
        # taken again from the logits: subtracting from what is rounded would round twice
        slope_N = chosen_N.sub_(highest_c.index_select(0, row_index_N)).exp2_()
        slope_N -= (total_c / count_c).index_select(0, row_index_N)
        logits_flat.index_copy_(0, position_N, slope_N.to(logits_cI.dtype))
        return value, count_c / total_c

    def _positions(self, rows: slice, num_columns: int) -> tuple[Tensor, Tensor]:
        """Return each target's row in the chunk, and its position in the flat logits: int64 [N]."""
        entries = self._entries[rows.start]
        row_index_N = self._row_index_N[entries]
        if rows.start:
            row_index_N = row_index_N - rows.start
        return row_index_N, self._item_index_N[entries] + row_index_N * num_columns
