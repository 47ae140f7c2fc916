"""From a chunk's logits to its likelihood and slopes, in PyTorch's own operations.

`FusedExponentials` needs no pass of its own for the exponentials. oneDNN's products can end in a
sigmoid, computed in float32 before anything is rounded. Far below 0 the sigmoid is the exponential:
``1 / (1 + exp(-x)) = exp(x) (1 - exp(x) + ...)``. So logits that are moved down far enough come out
as their exponentials, to within a rounding of bfloat16. They are more exact than exponentials of
rounded logits: 0.4 % against 2 % at a logit of 10.

Shape suffixes: B users, c users of a chunk, N their interactions, I items.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from foretaste.ops.dense import fuses, linear
from foretaste.ops.histories import HistoryTensors

_VALUES_AT_ONCE = 1 << 17
"""Exponentials are taken of this many logits for each thread at a time: they fit a core's cache."""
_SHIFT = 40.0
"""Subtracted from all logits: users whose exponentials total e**-20 to e**33 then fit."""
_LEAST_TOTAL = 1e-26
# sigmoid(x) is exp(x) but for a relative error of exp(x) at most: a quarter of bfloat16's spacing.
_MOST_TOTAL = torch.finfo(torch.bfloat16).eps / 4
_PIECES = 16


class ChunkTargets:
    """The targets of one chunk of users after another.

    Args:
        targets: of the whole batch.
        starts: the first user of each chunk.
        dtype: of the lengths.
    """

    def __init__(self, targets: HistoryTensors, starts: list[int], dtype: torch.dtype) -> None:
        self.count_B = targets.lengths().to(dtype)
        self._row_index_N = targets.row_index()
        self._item_index_N = targets.item_index
        bounds = targets.offsets[[*starts, len(targets)]].tolist()
        self._entries = {a: slice(*bounds[n : n + 2]) for n, a in enumerate(starts)}

    def positions(self, rows: slice, num_columns: int) -> tuple[Tensor, Tensor]:
        """The row of each target in the chunk, and its position in the flat logits, int64 [N]."""
        entries = self._entries[rows.start]
        row_index_N = self._row_index_N[entries]
        if rows.start:
            row_index_N = row_index_N - rows.start
        return row_index_N, self._item_index_N[entries] + row_index_N * num_columns


class Exponentials:
    """The likelihood of one chunk after another, each in place of its logits.

    Args:
        targets: of every chunk.
        sum_dtype: what sums are kept in.
        headroom: the chunk's values are divided by two to this power, and the factors multiplied by
            the same.
    """

    def __init__(self, targets: ChunkTargets, sum_dtype: torch.dtype, headroom: int = 0) -> None:
        self.targets = targets
        self.sum_dtype = sum_dtype
        self.headroom = headroom

    def likelihood_(self, logits_cI: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Minus the log-likelihood of the chunk, a scalar in base 2, and the factors ``n / t`` [c].

        ``logits_cI`` are in base 2 and contiguous; afterwards they hold ``e - x t / n``.
        """
        count_c, logits_flat = self.targets.count_B[rows], logits_cI.view(-1)
        row_index_N, position_N = self.targets.positions(rows, logits_cI.shape[1])
        chosen_N = logits_flat.index_select(0, position_N).to(self.sum_dtype)
        highest, totals = [], []
        num_values = _VALUES_AT_ONCE * torch.get_num_threads()
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


class FusedExponentials:
    """The likelihood of one chunk after another, from the exponentials of its logits.

    Args:
        targets: of every chunk.
        sum_dtype: what sums are kept in.
    """

    def __init__(self, targets: ChunkTargets, sum_dtype: torch.dtype) -> None:
        self.targets = targets
        self.sum_dtype = sum_dtype

    @staticmethod
    def can(hidden_BD: Tensor, num_items: int) -> bool:
        """True if products of such rows fuse, and are coarse enough for a sigmoid's tail."""
        fits = hidden_BD.dtype == torch.bfloat16 and num_items % _PIECES == 0
        return fits and fuses(hidden_BD) and _tail_is_exp()

    @staticmethod
    def product(hidden_cD: Tensor, weight_ID: Tensor, bias_I: Tensor) -> Tensor:
        """``exp(hidden @ weight.T + bias - 40)``, [c, I]; wrong where that is not small."""
        # in bfloat16 what is moved that far would be rounded to quarters
        return linear(hidden_cD, weight_ID, bias_I.float() - _SHIFT, "sigmoid")

    def likelihood_(self, exp_cI: Tensor, rows: slice) -> tuple[Tensor, Tensor] | None:
        """As `Exponentials.likelihood_` of the logits; None where they were too high or too low.

        ``exp_cI`` are contiguous; afterwards they hold ``e - x t / n``, unless it is None.
        """
        count_c, exp_flat = self.targets.count_B[rows], exp_cI.view(-1)
        row_index_N, position_N = self.targets.positions(rows, exp_cI.shape[1])
        chosen_N = exp_flat.index_select(0, position_N).to(self.sum_dtype)
        # of pieces rounded once each: a sum in float32 would make a copy
        num_users, num_items = exp_cI.shape
        # [c, I / 16, 16] to [c, 16].
        pieces = exp_cI.view(num_users, num_items // _PIECES, _PIECES).sum(1)
        total_c = pieces.to(self.sum_dtype).sum(1)
        fits = (total_c >= _LEAST_TOTAL) & (total_c <= _MOST_TOTAL)
        # Below `tiny` digits are lost, and 0 has no logarithm.
        is_lost = ~(chosen_N >= torch.finfo(exp_cI.dtype).tiny).all()
        if not fits.all() or is_lost:
            return None
        value = (count_c * total_c.log2()).sum() - chosen_N.log2().sum()
        slope_N = chosen_N.sub_((total_c / count_c).index_select(0, row_index_N))
        exp_flat.index_copy_(0, position_N, slope_N.to(exp_cI.dtype))
        return value, count_c / total_c


@cache
def _tail_is_exp() -> bool:
    """True if this processor's products end in a sigmoid that is exact where it is small."""
    logits_I = torch.linspace(-80.0, -8.0, _PIECES)
    zeros = torch.zeros(_PIECES, 1, dtype=torch.bfloat16)
    try:
        found_cI = linear(zeros[:1], zeros, logits_I, "sigmoid").float()
    except RuntimeError:
        return False
    return torch.allclose(found_cI, logits_I.exp(), rtol=torch.finfo(torch.bfloat16).eps, atol=0.0)
