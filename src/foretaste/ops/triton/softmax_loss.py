"""From a chunk's logits to its likelihood and slopes in one kernel, a program per user.

The row is read twice and written once: first for a running maximum and total, then to put the
exponentials over the logits. The logits of the user's items are saved before that, as slopes are
computed from them and not from rounded exponentials. The items come straight from the histories'
offsets, so the host does not wait. Each user belongs to one program, so nothing is added by
atomics.

Shape suffixes: B users, c users of a chunk, I items, V items of a block, T targets of a block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.triton.support import kernel, launch

# Logits of a block, in registers: 8 for each of the 256 threads of a program.
_ITEMS_AT_ONCE = 2048
_TARGETS_AT_ONCE = 128
_LOWEST = tl.constexpr(-3e38)
"""Below every finite logit, and finite: it may be subtracted from itself."""


class TritonExponentials:
    """`foretaste.ops.softmax_loss.exponentials.Exponentials` in Triton, with float32 sums.

    ``targets`` may hold entries beyond its last offset: padding, never read.
    """

    def __init__(self, targets: HistoryTensors, headroom: int = 0) -> None:
        self.targets = targets
        self.headroom = headroom
        num_entries = targets.item_index.numel()
        self.chosen_N = torch.empty(num_entries, device=targets.device)

    def likelihood_(self, logits_cI: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Compute the same as the method of `Exponentials`."""
        num_rows, num_items = logits_cI.shape
        value_c, factor_c = torch.empty(2, num_rows, device=logits_cI.device).unbind()
        launch(
            _likelihood,
            num_rows,
            logits_cI,
            self.targets.offsets[rows.start :],
            self.targets.item_index,
            self.chosen_N,
            value_c,
            factor_c,
            num_items,
            HEADROOM=self.headroom,
            BLOCK=min(_ITEMS_AT_ONCE, triton.next_power_of_2(max(1, num_items))),
            TARGETS=_TARGETS_AT_ONCE,
            num_warps=8,
        )
        return value_c.sum(), factor_c


@kernel
def _likelihood(
    logits_cI: tl.tensor,
    offsets: tl.tensor,
    item_index: tl.tensor,
    chosen_N: tl.tensor,
    value_c: tl.tensor,
    factor_c: tl.tensor,
    num_items: tl.tensor,
    HEADROOM: tl.constexpr,
    BLOCK: tl.constexpr,
    TARGETS: tl.constexpr,
) -> None:
    """Compute a row's value, factor and slopes."""
    row = tl.program_id(0)
    logits_I = logits_cI + row.to(tl.int64) * num_items
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    chosen = _keep_chosen(logits_I, item_index, chosen_N, start, stop, TARGETS)
    highest, total = _highest_and_total(logits_I, num_items, BLOCK)
    SCALE: tl.constexpr = 0.5**HEADROOM
    highest += HEADROOM
    total *= SCALE
    count = (stop - start).to(tl.float32)
    _to_slopes(logits_I, num_items, highest, BLOCK)
    share = total / tl.maximum(count, 1.0)
    for first in range(start, stop, TARGETS):
        entry_T = first + tl.arange(0, TARGETS)
        item_T = tl.load(item_index + entry_T, mask=entry_T < stop, other=0)
        logit_T = tl.load(chosen_N + entry_T, mask=entry_T < stop, other=_LOWEST)
        slope_T = tl.exp2(logit_T - highest) - share
        slope_T = slope_T.to(logits_cI.dtype.element_ty)
        tl.store(logits_I + item_T, slope_T, mask=entry_T < stop)
    # -sum over the n items of log2 p = n log2(sum of 2^z) - sum of z.
    tl.store(value_c + row, count * (highest + tl.log2(total)) - chosen)
    tl.store(factor_c + row, count / total)


@kernel
def _to_slopes(
    logits_I: tl.tensor, num_items: tl.tensor, highest: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Replace a row by its exponentials, which are the slopes of what is no target."""
    # threads write below what others of the program have read above, and the other way round
    tl.debug_barrier()
    for first in range(0, num_items, BLOCK):
        item_V = first + tl.arange(0, BLOCK)
        logit_V = _logits_at(logits_I, item_V, num_items)
        exp_V = tl.exp2(logit_V - highest).to(logits_I.dtype.element_ty)
        tl.store(logits_I + item_V, exp_V, mask=item_V < num_items)
    tl.debug_barrier()


@kernel
def _logits_at(logits_I: tl.tensor, item_V: tl.tensor, num_items: tl.tensor) -> tl.tensor:
    """Return a block of logits in float32; the lowest beyond the last item."""
    logit_V = tl.load(logits_I + item_V, mask=item_V < num_items, other=0.0)
    return tl.where(item_V < num_items, logit_V.to(tl.float32), _LOWEST)


@kernel
def _highest_and_total(
    logits_I: tl.tensor, num_items: tl.tensor, BLOCK: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Return the row's maximum, and the total of its exponentials less that maximum."""
    highest_V = tl.full((BLOCK,), _LOWEST, tl.float32)
    total_V = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, num_items, BLOCK):
        item_V = first + tl.arange(0, BLOCK)
        logit_V = _logits_at(logits_I, item_V, num_items)
        higher_V = tl.maximum(highest_V, logit_V)
        # A total that was taken less an older maximum is brought to the new one (Milakov &
        # Gimelshein 2018, online softmax).
        grown_V = total_V * tl.exp2(highest_V - higher_V) + tl.exp2(logit_V - higher_V)
        total_V = tl.where(item_V < num_items, grown_V, total_V)
        highest_V = higher_V
    highest = tl.max(highest_V, axis=0)
    return highest, tl.sum(total_V * tl.exp2(highest_V - highest), axis=0)


@kernel
def _keep_chosen(
    logits_I: tl.tensor,
    item_index: tl.tensor,
    chosen_N: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    TARGETS: tl.constexpr,
) -> tl.tensor:
    """Return the sum of the logits of the user's items; each is written down too."""
    sum_T = tl.zeros((TARGETS,), tl.float32)
    for first in range(start, stop, TARGETS):
        entry_T = first + tl.arange(0, TARGETS)
        item_T = tl.load(item_index + entry_T, mask=entry_T < stop, other=0)
        logit_T = tl.load(logits_I + item_T, mask=entry_T < stop, other=0.0).to(tl.float32)
        tl.store(chosen_N + entry_T, logit_T, mask=entry_T < stop)
        sum_T += logit_T
    return tl.sum(sum_T, axis=0)
