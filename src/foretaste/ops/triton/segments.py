"""Sums of rows by index on a GPU, without atomics: the same result every run.

The rows come in the order of their index, and each segment is cut into pieces of bounded length.
One program adds a piece up, another the pieces of a segment, always in the same order. An index
that is far more frequent than others has more pieces, so no program works much longer than the
others. Every row is read once, and no size depends on what only the device knows.

Shape suffixes: S rows to sum, I segments, P pieces, W width of the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from foretaste.ops.segments import Segments
from foretaste.ops.triton.functions import load_rows, load_vector
from foretaste.ops.triton.support import kernel, launch

# Rows that one program adds up, and how many of them it has in registers at once.
_PIECE_LENGTH = 256
_ROWS_AT_ONCE = 16


class Pieces(NamedTuple):
    """Pieces of every segment; P, at least their number, is known without asking the device.

    ``segment_P`` is the number of segments for what is beyond the last piece.
    """

    order_S: Tensor
    offsets: Tensor
    first_piece: Tensor
    segment_P: Tensor

    @classmethod
    def of(cls, index_S: Tensor, num_segments: int) -> Pieces:
        """Return the segments of rows ``index_S``; an index from ``num_segments`` up is in none."""
        segments = Segments(index_S, num_segments)
        num_pieces_I = (segments.offsets.diff() + (_PIECE_LENGTH - 1)) // _PIECE_LENGTH
        first_piece = torch.nn.functional.pad(num_pieces_I.cumsum(0), (1, 0))
        # Each segment ends with one piece that is not full, at most; the others are full.
        max_pieces = num_segments + index_S.numel() // _PIECE_LENGTH
        piece_P = torch.arange(max_pieces, device=index_S.device)
        segment_P = torch.searchsorted(first_piece, piece_P, right=True) - 1
        return cls(segments.order_S, segments.offsets, first_piece, segment_P)


def sum_rows(
    rows: Tensor,
    pieces: Pieces,
    scale_W: Tensor,
    *,
    weight_S: Tensor | None = None,
    samples_per_row: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return sums [I, W] by segment of ``weight_S[s] * rows[s // samples_per_row] * scale_W``.

    The sums are float32 for every dtype of ``rows`` and of the result (``dtype``).
    """
    num_segments, width = pieces.offsets.numel() - 1, rows.shape[1]
    partial_PW = rows.new_empty(pieces.segment_P.numel(), width, dtype=torch.float32)
    result_IW = rows.new_empty(num_segments, width, dtype=dtype)
    if width == 0:
        return result_IW
    padded = triton.next_power_of_2(width)
    launch(
        _sum_pieces,
        partial_PW.shape[0],
        rows,
        rows if weight_S is None else weight_S,
        pieces,
        partial_PW,
        num_segments,
        WIDTH=width,
        PADDED=padded,
        WEIGHTED=weight_S is not None,
        SAMPLES_PER_ROW=samples_per_row,
        LENGTH=_PIECE_LENGTH,
        BLOCK=_ROWS_AT_ONCE,
        num_warps=4,
    )
    launch(
        _sum_segments,
        num_segments,
        partial_PW,
        pieces,
        scale_W,
        result_IW,
        WIDTH=width,
        PADDED=padded,
        num_warps=1,
    )
    return result_IW


@kernel
def _sum_pieces(
    rows: tl.tensor,
    weight_S: tl.tensor,
    pieces: tl.tuple,
    partial_PW: tl.tensor,
    num_segments: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SAMPLES_PER_ROW: tl.constexpr,
    LENGTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    piece = tl.program_id(0)
    segment = tl.load(pieces.segment_P + piece)
    # The number of programs is the most pieces there may be; programs beyond the last piece do
    # nothing.
    if segment < num_segments:
        piece_of_segment = piece - tl.load(pieces.first_piece + segment)
        start = tl.load(pieces.offsets + segment) + piece_of_segment * LENGTH
        stop = tl.minimum(start + LENGTH, tl.load(pieces.offsets + segment + 1))
        total_W = tl.zeros((PADDED,), tl.float32)
        for first in range(start, stop, BLOCK):
            position_S = first + tl.arange(0, BLOCK)
            valid_S = position_S < stop
            sample_S = tl.load(pieces.order_S + position_S, mask=valid_S, other=0)
            row_SW = load_rows(rows, sample_S // SAMPLES_PER_ROW, valid_S, 0, PADDED, WIDTH)
            if WEIGHTED:
                row_SW *= tl.load(weight_S + sample_S, mask=valid_S, other=0.0)[:, None]
            total_W += tl.sum(row_SW, axis=0)
        column_W = tl.arange(0, PADDED)
        position_W = piece.to(tl.int64) * WIDTH + column_W
        tl.store(partial_PW + position_W, total_W, mask=column_W < WIDTH)


@kernel
def _sum_segments(
    partial_PW: tl.tensor,
    pieces: tl.tuple,
    scale_W: tl.tensor,
    result_IW: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
) -> None:
    segment = tl.program_id(0)
    start = tl.load(pieces.first_piece + segment)
    stop = tl.load(pieces.first_piece + segment + 1)
    total_W = tl.zeros((PADDED,), tl.float32)
    for piece in range(start, stop):
        total_W += load_vector(partial_PW + piece * WIDTH, WIDTH, PADDED)
    total_W *= load_vector(scale_W, WIDTH, PADDED)
    column_W = tl.arange(0, PADDED)
    position_W = segment.to(tl.int64) * WIDTH + column_W
    tl.store(result_IW + position_W, total_W.to(result_IW.dtype.element_ty), mask=column_W < WIDTH)
