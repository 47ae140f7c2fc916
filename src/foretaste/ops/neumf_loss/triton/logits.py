"""Logits of the interaction on a CUDA GPU: one launch of one fused kernel (`scores`).

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

from functools import cache
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from foretaste.ops.neumf_loss.inputs import InteractionInputs
from foretaste.ops.neumf_loss.triton.scores import Asked, ScoresShape, interaction_logits
from foretaste.ops.neumf_loss.triton.sizes import (
    DTYPES,
    constants,
    float32_precision,
    padded,
    tower_widths,
)
from foretaste.ops.neumf_loss.triton.tile import Tables, Weights
from foretaste.ops.triton.support import launch

_BLOCK = 64
_CHUNK = {2: 32, 4: 16}
"""Columns multiplied at a time, by the bytes of a number: twice as many are spilled to memory in
float32, and cost half precision a third of the programs that run side by side."""
_FACTORS_CHUNK = 32
_INT32_MOST = (1 << 31) - _BLOCK
"""Samples whose numbers, padding's too, are int32."""
_CATALOGUE_ROWS = 8
"""Rows and items of a catalogue's tile, `_BLOCK` together, are best equally many."""
_WIDEST = {2: 256, 4: 128}
"""The products of a tile this wide fit the registers; wider ones in float32 take minutes to
compile."""
_FEWEST_WARPS = 4
_WIDTH_OF_WARP = 32
_NUM_STAGES = 1


@torch.no_grad()
def logits(
    inputs: InteractionInputs,
    item_index_BK: Tensor,
    user_index_B: Tensor | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `neumf_loss.logits`, without gradients; the tower's products in ``compute_dtype``.

    Everything else is float32. `supports` says what it can take.
    """
    num_rows, num_candidates = item_index_BK.shape
    logits_BK = _empty(inputs, num_rows, num_candidates)
    item_index_BK = item_index_BK.contiguous()
    asked = Asked(item_index_BK, item_index_BK)
    if user_index_B is not None:
        asked = Asked(item_index_BK, user_index_B.contiguous())
    plan = _plan(
        tuple(tower_widths(inputs)),
        inputs.output_product_F.numel(),
        compute_dtype or inputs.item_tower_IH.dtype,
        float32_precision(),
        indexed=user_index_B is not None,
        wide=logits_BK.numel() > _INT32_MOST,
    )
    _launch(inputs, asked, logits_BK, -(-logits_BK.numel() // _BLOCK), plan)
    return logits_BK


@torch.no_grad()
def catalogue_logits(inputs: InteractionInputs) -> Tensor:
    """Logits [B, I] of every item for every row, without gradients; see `logits`."""
    num_rows, num_items = inputs.num_rows, inputs.num_items
    logits_BI = _empty(inputs, num_rows, num_items)
    tile_rows = 1 if num_rows < _CATALOGUE_ROWS else _CATALOGUE_ROWS
    plan = _plan(
        tuple(tower_widths(inputs)),
        inputs.output_product_F.numel(),
        inputs.item_tower_IH.dtype,
        float32_precision(),
        tile_rows=tile_rows,
    )
    num_tiles = -(-num_rows // tile_rows) * -(-num_items // (_BLOCK // tile_rows))
    _launch(inputs, Asked(logits_BI, logits_BI), logits_BI, num_tiles, plan)
    return logits_BI


def supports(inputs: InteractionInputs, dtype: torch.dtype) -> bool:
    """Whether `logits` and `catalogue_logits` can compute this: dtypes, and layers that fit."""
    return (
        dtype in DTYPES
        and all(tensor.dtype in DTYPES for tensor in inputs.tensors())
        and max(tower_widths(inputs)[1:], default=0) <= _WIDEST[dtype.itemsize]
    )


class _Plan(NamedTuple):
    """How the kernel is compiled."""

    shape: ScoresShape
    num_warps: int


def _launch(
    inputs: InteractionInputs, asked: Asked, logits: Tensor, num_tiles: int, plan: _Plan
) -> None:
    if num_tiles == 0:
        return
    num_rows, num_candidates = logits.shape
    layers = inputs.layers
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
            tuple(weight.contiguous() for weight, _ in layers),
            tuple(bias.contiguous() for _, bias in layers),
        ),
        asked,
        logits,
        num_rows,
        num_candidates,
        plan.shape,
        num_warps=plan.num_warps,
        num_stages=_NUM_STAGES,
    )


def _empty(inputs: InteractionInputs, num_rows: int, num_columns: int) -> Tensor:
    users, weights = inputs.user_product_BF, inputs.output_product_F
    dtype = torch.promote_types(users.dtype, weights.dtype)
    return users.new_empty(num_rows, num_columns, dtype=dtype)


@cache
def _plan(
    widths: tuple[int, ...],
    factors: int,
    dtype: torch.dtype,
    precision: str,
    *,
    indexed: bool = False,
    wide: bool = False,
    tile_rows: int = 0,
) -> _Plan:
    """Made once: Triton recognises the same object sooner than an equal one.

    More warps for wide layers, whose products no four have the registers for.
    """
    shape = ScoresShape(
        factors=tl.constexpr(factors),
        padded_factors=tl.constexpr(padded(factors) if factors else 0),
        factors_chunk=tl.constexpr(min(_FACTORS_CHUNK, padded(factors))),
        widths=constants(widths),
        padded=constants(padded(width) if width else 0 for width in widths),
        chunk=tl.constexpr(min(_CHUNK[dtype.itemsize], padded(widths[0]))),
        threshold=tl.constexpr(0),
        block=tl.constexpr(_BLOCK),
        tile_rows=tl.constexpr(tile_rows),
        indexed=tl.constexpr(indexed),
        wide=tl.constexpr(wide),
        dtype=tl.constexpr(DTYPES[dtype]),
        precision=tl.constexpr(precision),
    )
    widest = max(map(padded, widths[1:]), default=0)
    return _Plan(shape, max(_FEWEST_WARPS, widest // _WIDTH_OF_WARP))
