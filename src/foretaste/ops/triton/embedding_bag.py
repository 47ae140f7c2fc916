"""The history encoder on a GPU: a program per user sums table rows straight from the history.

Entries are dropped within the kernel, and their table rows are never read. Backward gives every
item the rows of its users by sorted segments, so nothing is added by atomics and equal runs give
equal gradients. The host never waits for the device, and entries beyond the histories' last offset
are padding.

Shape suffixes: B users, N interactions, I items, H width, E entries of a block.
"""

from __future__ import annotations

from typing import cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.dropout import ENTRY_BITS, drop_threshold, keep_rate
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import key_on_device
from foretaste.ops.triton.functions import hash_words
from foretaste.ops.triton.segments import Pieces, sum_rows
from foretaste.ops.triton.support import kernel, launch

# Table rows of a block are in registers: of 1,024 columns, 64 float32 numbers for each of 256
# threads.
_ENTRIES_AT_ONCE = 16


def encode(
    table_IH: Tensor, histories: HistoryTensors, *, dropout: float = 0.0, key: int | Tensor = 0
) -> Tensor:
    """Return what `encode_dense` returns, once differentiable by the table; sums in float32."""
    result = _Bags.apply(table_IH, histories, dropout, key)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _BagsContext(Context):
    histories: HistoryTensors
    dropout: float
    stays_N: Tensor


class _Bags(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _BagsContext,
        table_IH: Tensor,
        histories: HistoryTensors,
        dropout: float,
        key: int | Tensor,
    ) -> Tensor:
        ctx.histories, ctx.dropout = histories, dropout
        # Zeros, because no program visits the entries of padding, which must not stay.
        ctx.stays_N = torch.zeros_like(histories.item_index, dtype=torch.bool)
        num_items, width = table_IH.shape
        encoded_BH = table_IH.new_empty(len(histories), width)
        launch(
            _encode,
            len(histories),
            table_IH,
            histories.offsets,
            histories.item_index,
            key_on_device(table_IH.device, key),
            encoded_BH,
            ctx.stays_N,
            num_items,
            1.0 / keep_rate(dropout, ENTRY_BITS),
            WIDTH=width,
            PADDED=triton.next_power_of_2(width),
            BLOCK=_ENTRIES_AT_ONCE,
            THRESHOLD=drop_threshold(dropout, ENTRY_BITS),
            num_warps=8,
        )
        return encoded_BH

    @staticmethod
    @once_differentiable
    def backward(ctx: _BagsContext, *upstream: Tensor) -> Gradients:
        histories, num_items = ctx.histories, ctx.histories.num_items
        position_N = torch.arange(histories.item_index.numel(), device=histories.device)
        row_index_N = torch.searchsorted(histories.offsets, position_N, right=True) - 1
        # dropped entries and padding belong to no item
        segment_N = torch.where(ctx.stays_N, histories.item_index, num_items)
        pieces = Pieces.of(segment_N, num_items)
        pieces = pieces._replace(order_S=row_index_N.index_select(0, pieces.order_S))
        keep_scale = 1.0 / keep_rate(ctx.dropout, ENTRY_BITS)
        weight_B = histories.lengths().clamp_(min=1).float().rsqrt_() * keep_scale
        gradient_BH = upstream[0].contiguous()
        ones_H = torch.ones(gradient_BH.shape[1], device=gradient_BH.device)
        dtype = gradient_BH.dtype
        summed_IH = sum_rows(gradient_BH, pieces, ones_H, weight_S=weight_B, dtype=dtype)
        return summed_IH, None, None, None


@kernel
def _encode(
    table_IH: tl.tensor,
    offsets: tl.tensor,
    item_index: tl.tensor,
    key_1: tl.tensor,
    encoded_BH: tl.tensor,
    stays_N: tl.tensor,
    num_items: tl.tensor,
    keep_scale: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    THRESHOLD: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    # Unsigned, as `>>` of a signed word shifts in its sign.
    key = tl.load(key_1).to(tl.uint64, bitcast=True)
    column_H = tl.arange(0, PADDED)
    total_H = tl.zeros((PADDED,), tl.float32)
    for first in range(start, stop, BLOCK):
        entry_E = first + tl.arange(0, BLOCK)
        item_E = tl.load(item_index + entry_E, mask=entry_E < stop, other=0).to(tl.int64)
        # bit for bit `foretaste.ops.dropout.keep_entries`
        place_E = entry_E - start
        word_E = hash_words(key, ((row << 32) + place_E // 4).to(tl.uint64))
        shift_E = (16 * (place_E % 4)).to(tl.uint64)
        keep_E = ((word_E >> shift_E) & 0xFFFF).to(tl.int32) >= THRESHOLD
        stays_E = (entry_E < stop) & keep_E
        tl.store(stays_N + entry_E, stays_E, mask=entry_E < stop)
        mask_EH = stays_E[:, None] & (column_H < WIDTH)[None, :]
        position_EH = item_E[:, None] * WIDTH + column_H[None, :]
        rows_EH = tl.load(table_IH + position_EH, mask=mask_EH, other=0.0)
        total_H += tl.sum(rows_EH.to(tl.float32), axis=0)
    length = tl.maximum(stop - start, 1).to(tl.float32)
    total_H *= keep_scale / tl.sqrt(length)
    encoded_H = total_H.to(encoded_BH.dtype.element_ty)
    tl.store(encoded_BH + row * WIDTH + column_H, encoded_H, mask=column_H < WIDTH)
