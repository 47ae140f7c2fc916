"""The first layer of an autoencoder over histories, without their dense [users, items] rows.

`encode_dense` is the definition. The other form sums table rows straight from the histories, and
never reads entries that dropout takes. Backward sorts the kept entries by item and sums each
item's segment. So every row of the table's gradient is written once, in the same order each time.

Shape suffixes: B users, N interactions, n those that dropout keeps, I items, H width.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.buffers import Buffers
from foretaste.ops.dropout import ENTRY_BITS, keep_entries, keep_rate
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.segments import Segments, sum_bags

Implementation = Literal["reference", "chunked", "triton"]


def encode(
    table_IH: Tensor,
    histories: HistoryTensors,
    *,
    dropout: float = 0.0,
    key: int | Tensor = 0,
    buffers: Buffers | None = None,
    implementation: Implementation = "chunked",
) -> Tensor:
    """Return ``dropout(x / |x|) @ table`` for each user's 0/1 history x, [B, H]: `encode_dense`.

    Args:
        table_IH: float [I, H]; the result is differentiable with respect to it, once unless by
            ``reference``.
        histories: B users over I items; an empty history encodes to zero.
        dropout: share of entries that are dropped, in [0, 1).
        key: stream of random words that decides which, from `foretaste.ops.random.stream_key`.
        buffers: where to keep the memory of the table's gradient from one call to the next.
        implementation: ``reference`` makes dense rows; ``chunked`` sums table rows, on any device;
            ``triton`` is the same in one kernel, for CUDA tensors, and never waits for the device.
    """
    if implementation == "reference":
        return encode_dense(table_IH, histories, dropout=dropout, key=key)
    if implementation == "triton":
        from foretaste.ops.triton import embedding_bag as triton

        return triton.encode(table_IH, histories, dropout=dropout, key=key)
    # A history of n ones has the length root of n. One factor for each user is applied to the
    # sum, in place of one for each entry.
    # An empty history sums to zero; 1 in place of 0 keeps zero times infinity away.
    weight_B = histories.lengths().clamp_(min=1).to(table_IH.dtype).rsqrt_()
    if dropout > 0.0:
        item_index_N = histories.item_index
        # nonzero() waits for a GPU, because the number kept decides a shape. Triton's form has no
        # wait.
        kept_n = keep_entries(histories, dropout, key).nonzero().squeeze(1)
        # The number of entries kept before an offset is its offset among those kept.
        offsets = torch.searchsorted(kept_n, histories.offsets)
        item_index_n = item_index_N.index_select(0, kept_n)
        histories = HistoryTensors(offsets, item_index_n, histories.num_items)
        weight_B.mul_(1.0 / keep_rate(dropout, ENTRY_BITS))
    if not torch.is_grad_enabled():
        return sum_bags(table_IH, histories.item_index, histories.offsets).mul_(weight_B[:, None])
    result = _Bags.apply(table_IH, histories, weight_B[:, None], buffers or Buffers())  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _BagsContext(Context):
    histories: HistoryTensors
    weight_B1: Tensor
    buffers: Buffers


class _Bags(torch.autograd.Function):
    """Sums of each user's table rows, times the user's weight."""

    @staticmethod
    def forward(
        ctx: _BagsContext,
        table_IH: Tensor,
        histories: HistoryTensors,
        weight_B1: Tensor,
        buffers: Buffers,
    ) -> Tensor:
        ctx.histories, ctx.weight_B1, ctx.buffers = histories, weight_B1, buffers
        return sum_bags(table_IH, histories.item_index, histories.offsets).mul_(weight_B1)

    @staticmethod
    @once_differentiable
    def backward(ctx: _BagsContext, *upstream: Tensor) -> Gradients:
        sums_IH = Segments(ctx.histories.item_index, ctx.histories.num_items).sum(
            # The user's factor goes into [B, H] once, not into a row for each interaction.
            upstream[0] * ctx.weight_B1,
            ctx.histories.row_index(),
            buffers=ctx.buffers,
            name="encoder gradient",
        )
        return sums_IH, None, None, None


def encode_dense(
    table_IH: Tensor, histories: HistoryTensors, *, dropout: float = 0.0, key: int | Tensor = 0
) -> Tensor:
    """Return ``dropout(x / |x|) @ table`` for each user's 0/1 history x, [B, H].

    An entry is dropped if its 16 bits of the stream ``key`` (`keep_entries`) are below
    ``dropout * 2**16``; what stays is divided by the quantised keep rate, as the
    reference systems' dropout on the normalised input does. An empty history encodes to zero.
    """
    row_index_N = histories.row_index()
    # The factor of an empty history is infinite, and no entry reads it.
    weight_N = histories.lengths().to(table_IH.dtype).rsqrt_()[row_index_N]
    if dropout > 0.0:
        keep_N = keep_entries(histories, dropout, key)
        weight_N *= keep_N.to(weight_N.dtype) * (1.0 / keep_rate(dropout, ENTRY_BITS))
    dense_BI = table_IH.new_zeros(len(histories), histories.num_items)
    dense_BI[row_index_N, histories.item_index.long()] = weight_N
    return dense_BI @ table_IH
