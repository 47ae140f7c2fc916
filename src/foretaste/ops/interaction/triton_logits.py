"""Logits of the interaction on a CUDA GPU: one launch of one fused kernel (`triton_scores`).

Bytes of S pairs in half precision, H -> D1 -> D2 wide with F factors (in brackets: megabytes at
S = 2**20, 256 -> 128 -> 64, F = 64)::

    read    rows of both tables, 2 S (2 H + 4 F), the items' from L2     [1611]
            indexes, 16 S                                                  [17]
    write   logits, 4 S                                                     [4]

0.8 GB of it through device memory at most, 0.2 ms at 4.3 TB/s; 2 S (H D1 + D1 D2) = 0.09 TFLOP of
products, 0.11 ms at 790 TFLOP/s, and 1.4 ms in float32 at 60 TFLOP/s.

Shape suffixes: B rows, K candidates per row, S samples, I items, F factors, H and D tower widths.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import triton.language as tl
from torch import Tensor

from foretaste.ops.interaction.triton_scores import Asked, ScoresShape, interaction_logits
from foretaste.ops.interaction.triton_sizes import (
    DTYPES,
    constants,
    float32_precision,
    padded,
    shared_limit,
    tower_widths,
)
from foretaste.ops.interaction.triton_tile import Tables, Weights
from foretaste.ops.interaction.types import InteractionInputs
from foretaste.ops.triton_support import launch

_BLOCK = 64
_NUM_WARPS = 4
_NUM_STAGES = 1
_HALF_CHUNK = 64
_FLOAT32_CHUNK = 16
"""Threads hold all of a chunk that they multiply: twice as much is spilled to memory."""
_FACTORS_CHUNK = 32
_INT32_MOST = (1 << 31) - _BLOCK
_CATALOGUE_ROWS = 8
"""Rows and items of a catalogue's tile, `_BLOCK` together, are best equally many."""
_WIDEST = 256
"""The products of a tile this wide still fit the registers."""


@torch.no_grad()
def logits(
    inputs: InteractionInputs,
    item_index_BK: Tensor,
    user_index_B: Tensor | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `dispatch.logits`, without gradients; the tower's products in ``compute_dtype``.

    Everything else is float32. `supports` says what it can take.
    """
    num_rows, num_candidates = item_index_BK.shape
    dtype = compute_dtype or inputs.item_tower_IH.dtype
    logits_BK = _empty(inputs, num_rows, num_candidates)
    item_index_BK = item_index_BK.contiguous()
    asked = Asked(item_index_BK, item_index_BK)
    if user_index_B is not None:
        asked = Asked(item_index_BK, user_index_B.contiguous())
    shape = _shape(inputs, dtype, logits_BK, indexed=user_index_B is not None)
    num_tiles = -(-logits_BK.numel() // _BLOCK)
    _launch(inputs, asked, logits_BK, num_tiles, shape)
    return logits_BK


@torch.no_grad()
def catalogue_logits(inputs: InteractionInputs) -> Tensor:
    """Logits [B, I] of every item for every row, without gradients; see `logits`."""
    num_rows, num_items = inputs.num_rows, inputs.num_items
    logits_BI = _empty(inputs, num_rows, num_items)
    tile_rows = 1 if num_rows < _CATALOGUE_ROWS else _CATALOGUE_ROWS
    shape = _shape(inputs, inputs.item_tower_IH.dtype, logits_BI, tile_rows=tile_rows)
    num_tiles = -(-num_rows // tile_rows) * -(-num_items // (_BLOCK // tile_rows))
    _launch(inputs, Asked(logits_BI, logits_BI), logits_BI, num_tiles, shape)
    return logits_BI


def supports(inputs: InteractionInputs, dtype: torch.dtype) -> bool:
    """Whether `logits` and `catalogue_logits` can compute this: dtypes, and widths that fit."""
    widths = tower_widths(inputs)
    return (
        dtype in DTYPES
        and all(tensor.dtype in DTYPES for tensor in inputs.tensors())
        and max(widths[1:], default=0) <= _WIDEST
        and _shared_bytes(widths, dtype) <= shared_limit(inputs.device)
    )


def _launch(
    inputs: InteractionInputs, asked: Asked, logits: Tensor, num_tiles: int, shape: ScoresShape
) -> None:
    if num_tiles == 0:
        return
    num_rows, num_candidates = logits.shape
    launch(
        interaction_logits,
        num_tiles,
        Tables(
            inputs.user_product_BF.contiguous(),
            inputs.item_product_IF.contiguous(),
            inputs.user_tower_BH.contiguous(),
            inputs.item_tower_IH.contiguous(),
        ),
        Weights(
            inputs.output_product_F.contiguous(),
            inputs.output_tower_D.contiguous(),
            inputs.output_bias_1,
            tuple(weight.contiguous() for weight, _ in inputs.layers),
            tuple(bias.contiguous() for _, bias in inputs.layers),
        ),
        asked,
        logits,
        num_rows,
        num_candidates,
        shape,
        num_warps=_NUM_WARPS,
        num_stages=_NUM_STAGES,
    )


def _empty(inputs: InteractionInputs, num_rows: int, num_columns: int) -> Tensor:
    users, weights = inputs.user_product_BF, inputs.output_product_F
    dtype = torch.promote_types(users.dtype, weights.dtype)
    return users.new_empty(num_rows, num_columns, dtype=dtype)


def _shape(
    inputs: InteractionInputs,
    dtype: torch.dtype,
    logits: Tensor,
    *,
    tile_rows: int = 0,
    indexed: bool = False,
) -> ScoresShape:
    factors = inputs.output_product_F.numel()
    widths = tower_widths(inputs)
    padded_factors = padded(factors) if factors else 0
    return ScoresShape(
        factors=tl.constexpr(factors),
        padded_factors=tl.constexpr(padded_factors),
        factors_chunk=tl.constexpr(min(_FACTORS_CHUNK, padded(factors))),
        widths=constants(widths),
        padded=constants(padded(width) if width else 0 for width in widths),
        chunk=tl.constexpr(min(_chunk(dtype), padded(widths[0]))),
        threshold=tl.constexpr(0),
        block=tl.constexpr(_BLOCK),
        tile_rows=tl.constexpr(tile_rows),
        indexed=tl.constexpr(indexed),
        wide=tl.constexpr(logits.numel() > _INT32_MOST),
        dtype=tl.constexpr(DTYPES[dtype]),
        precision=tl.constexpr(float32_precision()),
    )


def _chunk(dtype: torch.dtype) -> int:
    return _HALF_CHUNK if dtype.itemsize == 2 else _FLOAT32_CHUNK


def _shared_bytes(widths: list[int], dtype: torch.dtype) -> int:
    """Shared memory of a program at most: a tile between two layouts, and a chunk of weights."""
    chunk = _chunk(dtype)
    return max(
        (4 * _BLOCK * padded(after) + dtype.itemsize * chunk * (_BLOCK + padded(after)))
        for _, after in pairwise(widths)
    )
