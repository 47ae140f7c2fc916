"""Exponentials that the product of the logits takes itself, without a pass of their own.

oneDNN's products can end in a sigmoid, computed in float32 before anything is rounded. Far below 0
the sigmoid is the exponential, ``1 / (1 + exp(-x)) = exp(x) (1 - exp(x) + ...)``, so logits moved
down far enough come out as their exponentials, to within a rounding of bfloat16. They are more
exact than exponentials of logits that were rounded first: 0.4 % against 2 % at a logit of 10.

Shape suffixes: c users of a chunk, N their interactions, I items.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from foretaste.ops.linear import fuses, linear
from foretaste.ops.softmax_loss.exponentials import ChunkTargets

_SHIFT = 40.0
"""Subtracted from all logits: users whose exponentials total e**-20 to e**33 then fit."""
_LEAST_TOTAL = 1e-26
_MOST_TOTAL = torch.finfo(torch.bfloat16).eps / 4
_PIECES = 16


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
        """Whether products of such rows fuse, and are coarse enough for a sigmoid's tail."""
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
        row_index_N, place_N = self.targets.places(rows, exp_cI.shape[1])
        chosen_N = exp_flat.index_select(0, place_N).to(self.sum_dtype)
        total_c = self._totals(exp_cI)
        fits = (total_c >= _LEAST_TOTAL) & (total_c <= _MOST_TOTAL)
        if not (fits.all() and (chosen_N >= torch.finfo(exp_cI.dtype).tiny).all()):
            return None
        value = (count_c * total_c.log2()).sum() - chosen_N.log2().sum()
        slope_N = chosen_N.sub_((total_c / count_c).index_select(0, row_index_N))
        exp_flat.index_copy_(0, place_N, slope_N.to(exp_cI.dtype))
        return value, count_c / total_c

    def _totals(self, exp_cI: Tensor) -> Tensor:
        """Row sums [c], of pieces rounded once each: a sum in float32 would make a copy."""
        num_users, num_items = exp_cI.shape
        pieces = exp_cI.view(num_users, num_items // _PIECES, _PIECES).sum(1)
        return pieces.to(self.sum_dtype).sum(1)


@cache
def _tail_is_exp() -> bool:
    """Whether this processor's products end in a sigmoid that is exact where it is small."""
    logits_I = torch.linspace(-80.0, -8.0, _PIECES)
    zeros = torch.zeros(_PIECES, 1, dtype=torch.bfloat16)
    try:
        found_cI = linear(zeros[:1], zeros, logits_I, "sigmoid").float()
    except RuntimeError:
        return False
    return torch.allclose(found_cI, logits_I.exp(), rtol=torch.finfo(torch.bfloat16).eps, atol=0.0)
