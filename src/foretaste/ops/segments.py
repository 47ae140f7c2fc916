"""Sums of rows by index, and gathers whose gradients are such sums: in a fixed order, no atomics.

``index_add_`` and the gradient of ``index_select`` add row after row into memory on the CPU and
race on a GPU; sorting the indexes once and summing each segment writes every row once, in the same
order every time.

Shape suffixes: S summands, N rows that they are among, D their width, I rows of the result; B rows
gathered.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.buffers import Buffers
from foretaste.ops.limits import LIMITS

# Bits of a nonnegative int16, which NumPy's stable sort orders by radix.
_DIGIT_BITS = 15
_FEW = 1 << 15
"""PyTorch sorts fewer numbers by comparing them, which takes up to ten times as long as digit by
digit."""


class Segments:
    """Rows grouped by the index they belong to; sorted once, used for several sums.

    ``index_S`` integer and not negative. Rows whose index is ``num_segments`` or above are in no
    segment; `sum` takes such rows on a CPU only.
    """

    def __init__(self, index_S: Tensor, num_segments: int) -> None:
        grouped = _by_counting if index_S.device.type == "cpu" else _by_searching
        self.order_S, self.offsets = grouped(index_S, num_segments)

    def sum(
        self,
        rows_ND: Tensor,
        row_index_S: Tensor | None = None,
        *,
        weight_S: Tensor | None = None,
        buffers: Buffers | None = None,
        name: str = "sums",
    ) -> Tensor:
        """Return the sum of each index's rows, [I, D] in their dtype, summed in float32 or above.

        Args:
            rows_ND: the S summands, or rows that contain them.
            row_index_S: which row each summand is; none means one for one.
            weight_S: factors of the summands.
            buffers: where a large result is kept, as ``name``.
        """
        order_S = self.order_S
        if weight_S is not None:
            weight_S = weight_S.index_select(0, order_S)
        if row_index_S is not None:
            order_S = row_index_S.index_select(0, order_S)
        shape = (len(self.offsets) - 1, rows_ND.shape[1])
        if rows_ND.shape[1] == 0:
            return rows_ND.new_zeros(shape)
        # embedding_bag has no `out`. Its results of some segments, which fit a cache, are copied
        # into memory that is used again, in place of fresh pages for the whole.
        segments_at_once = max(1, LIMITS["cpu"].sum_bytes // (rows_ND.shape[1] * rows_ND.itemsize))
        if buffers is None or rows_ND.device.type != "cpu" or shape[0] <= segments_at_once:
            return sum_bags(rows_ND, order_S, self.offsets, weight_S)
        sums_ID = buffers.empty(name, shape, rows_ND.dtype, rows_ND.device)
        bounds = [*range(0, shape[0], segments_at_once), shape[0]]
        summands = pairwise(self.offsets[bounds].tolist())
        for segments, (start, stop) in zip(pairwise(bounds), summands, strict=True):
            offsets = self.offsets[segments[0] : segments[1] + 1] - start
            weights = None if weight_S is None else weight_S[start:stop]
            sums_ID[slice(*segments)] = sum_bags(rows_ND, order_S[start:stop], offsets, weights)
        return sums_ID


def _by_counting(index_S: Tensor, num_segments: int) -> tuple[Tensor, Tensor]:
    """Return the order of the rows of all segments, each segment's offset, then the end."""
    # sorting by two bytes takes half as long as by four and a quarter of eight
    dtype = torch.int16 if num_segments < 1 << _DIGIT_BITS else torch.int32
    # What is in no segment may be any larger number; `num_segments` fits the narrow dtype.
    index_S = index_S.clamp(max=num_segments).to(dtype)
    num_before = F.pad(torch.bincount(index_S, minlength=num_segments).cumsum(0), (1, 0))
    offsets = num_before[: num_segments + 1]
    # Rows of no segment have the largest index, so they come last and are cut off.
    return stable_order(index_S, num_segments)[: int(offsets[-1])], offsets


def _by_searching(index_S: Tensor, num_segments: int) -> tuple[Tensor, Tensor]:
    """Return what `_by_counting` returns, without a wait; rows of no segment are last in order."""
    sorted_S, order_S = torch.sort(index_S, stable=True)
    bounds = torch.arange(num_segments + 1, device=index_S.device).to(index_S.dtype)
    # Not `bincount`, which reads the largest index from the device to size its result.
    return order_S, torch.searchsorted(sorted_S, bounds)


def stable_order(index_S: Tensor, largest: int) -> Tensor:
    """Return the positions that stably sort integers from 0 to ``largest``, on the CPU."""
    if len(index_S) >= _FEW:
        return torch.sort(index_S, stable=True).indices
    # From the lowest digit up, each pass stable: rows with the same digit keep the order of the
    # lower digits.
    order_S = torch.arange(len(index_S))
    for shift in range(0, largest.bit_length(), _DIGIT_BITS):
        digit_S = (index_S.index_select(0, order_S) >> shift & (1 << _DIGIT_BITS) - 1).short()
        order_S = order_S.index_select(0, torch.from_numpy(digit_S.numpy().argsort(kind="stable")))
    return order_S


def sum_bags(
    rows_ND: Tensor, index_S: Tensor, offsets: Tensor, weight_S: Tensor | None = None
) -> Tensor:
    """Return the sum of each bag's rows: ``index_S[offsets[b]:offsets[b + 1]]`` for bag b.

    [number of bags, D] of the rows' dtype; the last offset is the length of ``index_S``, and
    ``weight_S`` are factors of the summands.
    """
    if rows_ND.shape[1] == 0:  # embedding_bag of two threads refuses rows of no columns
        return rows_ND.new_zeros(len(offsets) - 1, 0)

    offsets = offsets.to(index_S.dtype)
    return F.embedding_bag(
        index_S,
        rows_ND,
        offsets,
        mode="sum",
        include_last_offset=True,
        per_sample_weights=weight_S,
    )


class _GatherContext(Context):
    buffers: Buffers | None
    name: str
    num_rows: int


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _GatherContext, index_B: Tensor, buffers: Buffers | None, name: str, *tables_ND: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(index_B)
        ctx.buffers, ctx.name = buffers, name
        ctx.num_rows = tables_ND[0].shape[0]
        return tuple(table_ND.index_select(0, index_B) for table_ND in tables_ND)

    @staticmethod
    @once_differentiable
    def backward(ctx: _GatherContext, *gradients_BD: Tensor) -> Gradients:
        (index_B,), num_rows, buffers = ctx.saved_tensors, ctx.num_rows, ctx.buffers or Buffers()
        is_cpu, is_half = index_B.device.type == "cpu", any(g.itemsize == 2 for g in gradients_BD)
        # Otherwise each addition would be rounded to half precision.
        are_few = is_cpu and not is_half and len(index_B) <= LIMITS["cpu"].few_summands
        segments = None if are_few else Segments(index_B, num_rows)
        sums = []
        for number, gradient_BD in enumerate(gradients_BD):
            name, like = f"{ctx.name} {number}", (gradient_BD.dtype, gradient_BD.device)
            if segments is None:
                zeros_ND = buffers.empty(name, (num_rows, gradient_BD.shape[1]), *like).zero_()
                sums.append(zeros_ND.index_add_(0, index_B, gradient_BD))
            else:
                sums.append(segments.sum(gradient_BD.contiguous(), buffers=buffers, name=name))
        return None, None, None, *sums


def gather(
    index_B: Tensor, *tables_ND: Tensor, buffers: Buffers | None = None, name: str = "gather"
) -> list[Tensor]:
    """Return ``table[index]`` [B, D] of each table; all have the same number of rows N.

    ``buffers`` keep the memory of the tables' gradients, under ``name``.
    """
    rows = _Gather.apply(index_B, buffers, name, *tables_ND)  # type: ignore[no-untyped-call]
    return list(cast(tuple[Tensor, ...], rows))
