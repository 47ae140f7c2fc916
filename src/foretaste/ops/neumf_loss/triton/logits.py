"""Logits of the interaction on a CUDA GPU: one launch of one fused kernel, nothing else written.

Each program scores one tile of samples. The tower is multiplied in chunks of columns: the first
layer is gathered chunk by chunk, the later ones are cut up in registers, and weights are read as
they are needed, from a cache that other programs keep warm. So widths are bound by registers alone,
and float32 products, which run without tensor cores, need few operands at a time: whole layers at
once were spilled to memory.

Bytes of S pairs in half precision, H -> D1 -> D2 wide with F factors (in brackets: megabytes at
S = 2**20, 256 -> 128 -> 64, F = 64)::

    read    rows of both tables, 2 S (2 H + 4 F), the items' from L2     [1611]
            indexes, 16 S                                                  [17]
    write   logits, 4 S                                                     [4]

0.8 GB of it through device memory at most, 0.2 ms at 4.3 TB/s; 2 S (H D1 + D1 D2) = 0.09 TFLOP of
products, 0.11 ms at 790 TFLOP/s, and 1.4 ms in float32 at 60 TFLOP/s.

Shape suffixes: B rows, K candidates per row, I items, S samples of a tile, C columns of a chunk, F
factors and W some layer's width, both padded; H and D tower widths.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from foretaste.ops.neumf_loss.inputs import InteractionInputs
from foretaste.ops.neumf_loss.triton import tower
from foretaste.ops.neumf_loss.triton.tower import DTYPES, Tables, Tile, Weights, constants, padded
from foretaste.ops.triton.functions import load_vector
from foretaste.ops.triton.support import kernel, launch

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


class ScoresShape(NamedTuple):
    """Sizes that the kernel is compiled for, as `tower.Shape`."""

    factors: Any
    padded_factors: Any
    factors_chunk: Any
    """Factors multiplied at a time."""
    widths: Any
    padded: Any
    """As the widths, but zero for a tower that is left out."""
    chunk: Any
    """Columns of a layer multiplied at a time."""
    threshold: Any
    """Zero: nothing is dropped."""
    block: Any
    """Samples of a tile."""
    tile_rows: Any
    """Rows that a tile of the catalogue spans; zero for candidates of each row."""
    indexed: Any
    """True if rows are looked up in ``user_index_B``."""
    wide: Any
    """True if there are more samples than int32 counts."""
    dtype: Any
    precision: Any


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
    logits_BK = _empty(inputs, *item_index_BK.shape)
    item_index_BK = item_index_BK.contiguous()
    shape = _shape(
        inputs,
        compute_dtype or inputs.item_tower_IH.dtype,
        indexed=user_index_B is not None,
        wide=logits_BK.numel() > _INT32_MOST,
    )
    row_index_B = item_index_BK if user_index_B is None else user_index_B.contiguous()
    num_tiles = -(-logits_BK.numel() // _BLOCK)
    _launch(inputs, item_index_BK, row_index_B, logits_BK, num_tiles, shape)
    return logits_BK


@torch.no_grad()
def catalogue_logits(inputs: InteractionInputs) -> Tensor:
    """Logits [B, I] of every item for every row, without gradients; see `logits`."""
    num_rows, num_items = inputs.num_rows, inputs.num_items
    logits_BI = _empty(inputs, num_rows, num_items)
    tile_rows = 1 if num_rows < _CATALOGUE_ROWS else _CATALOGUE_ROWS
    shape = _shape(inputs, inputs.item_tower_IH.dtype, tile_rows=tile_rows)
    num_tiles = -(-num_rows // tile_rows) * -(-num_items // (_BLOCK // tile_rows))
    _launch(inputs, logits_BI, logits_BI, logits_BI, num_tiles, shape)
    return logits_BI


def supports(inputs: InteractionInputs, dtype: torch.dtype) -> bool:
    """True if `logits` and `catalogue_logits` can compute this: dtypes, and layers that fit."""
    return (
        dtype in DTYPES
        and all(tensor.dtype in DTYPES for tensor in inputs.tensors())
        and max(tower.widths_of(inputs)[1:], default=0) <= _WIDEST[dtype.itemsize]
    )


def _launch(
    inputs: InteractionInputs,
    item_index_BK: Tensor,
    user_index_B: Tensor,
    logits: Tensor,
    num_tiles: int,
    shape: ScoresShape,
) -> None:
    """Run the kernel; ``shape`` says whether it reads either index."""
    if num_tiles == 0:
        return
    widest = max(map(padded, tower.widths_of(inputs)[1:]), default=0)
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
        item_index_BK,
        user_index_B,
        logits,
        *logits.shape,
        shape,
        # more for wide layers, whose products four have not the registers for
        num_warps=max(_FEWEST_WARPS, widest // _WIDTH_OF_WARP),
        num_stages=_NUM_STAGES,
    )


def _empty(inputs: InteractionInputs, num_rows: int, num_columns: int) -> Tensor:
    users, weights = inputs.user_product_BF, inputs.output_product_F
    dtype = torch.promote_types(users.dtype, weights.dtype)
    return users.new_empty(num_rows, num_columns, dtype=dtype)


def _shape(inputs: InteractionInputs, dtype: torch.dtype, **options: int) -> ScoresShape:
    widths, factors = tuple(tower.widths_of(inputs)), inputs.output_product_F.numel()
    return _cached_shape(widths, factors, dtype, tower.float32_precision(), **options)


@cache
def _cached_shape(
    widths: tuple[int, ...],
    factors: int,
    dtype: torch.dtype,
    precision: str,
    *,
    indexed: bool = False,
    wide: bool = False,
    tile_rows: int = 0,
) -> ScoresShape:
    # Triton recognises the same object sooner than an equal one
    return ScoresShape(
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


@kernel
def interaction_logits(
    tables: tl.tuple,
    weights: tl.tuple,
    item_index_BK: tl.tensor,
    user_index_B: tl.tensor,
    logits_S: tl.tensor,
    num_rows: tl.tensor,
    num_candidates: tl.tensor,
    shape: tl.tuple,
) -> None:
    """Logits [B, K] of each row's candidates, or [B, I] of the catalogue."""
    if shape.tile_rows > 0:
        tile = _catalogue_tile(num_rows, num_candidates, shape)
    else:
        tile = _pairs_tile(item_index_BK, user_index_B, num_rows, num_candidates, shape)
    if len(shape.widths) > 1:
        logit_S = _deep_tower(tables, weights, tile, shape)
    else:
        logit_S = tl.zeros((shape.block,), tl.float32)
        for first in range(0, shape.padded[0], shape.chunk):
            chunk_SC = tower.first_chunk(tables, tile, 0, first, shape).to(tl.float32)
            output_C = load_vector(weights.output_tower_D, shape.widths[0], shape.chunk, first)
            logit_S += tl.sum(chunk_SC * output_C[None, :], axis=1)
    for first in range(0, shape.padded_factors, shape.factors_chunk):
        user_SC, item_SC = tower.gathered_product(tables, tile, first, shape.factors_chunk, shape)
        output_C = load_vector(weights.output_product_F, shape.factors, shape.factors_chunk, first)
        logit_S += tl.sum(user_SC * item_SC * output_C[None, :], axis=1)
    logit_S += tl.load(weights.output_bias_1).to(tl.float32)
    tl.store(logits_S + tile.sample_S, logit_S, mask=tile.valid_S)


@kernel
def _pairs_tile(
    item_index_BK: tl.tensor,
    user_index_B: tl.tensor,
    num_rows: tl.tensor,
    num_candidates: tl.tensor,
    shape: tl.tuple,
) -> tl.tuple:
    """Samples in their order, whatever rows they belong to."""
    position_S = tl.arange(0, shape.block)
    if shape.wide:
        position_S = position_S.to(tl.int64)
    sample_S = tl.program_id(0).to(position_S.dtype) * shape.block + position_S
    row_S = sample_S // num_candidates
    valid_S = row_S < num_rows
    item_S = tl.load(item_index_BK + sample_S, mask=valid_S, other=0)
    if shape.indexed:
        row_S = tl.load(user_index_B + row_S, mask=valid_S, other=0)
    return Tile(row_S, item_S, sample_S, valid_S)


@kernel
def _catalogue_tile(num_rows: tl.tensor, num_items: tl.tensor, shape: tl.tuple) -> tl.tuple:
    """Neighbouring items of neighbouring rows, so that one read serves several samples."""
    TILE_ITEMS: tl.constexpr = shape.block // shape.tile_rows
    tiles_across = tl.cdiv(num_items, TILE_ITEMS)
    position_S = tl.arange(0, shape.block)
    row_S = tl.program_id(0) // tiles_across * shape.tile_rows + position_S // TILE_ITEMS
    item_S = tl.program_id(0) % tiles_across * TILE_ITEMS + position_S % TILE_ITEMS
    sample_S = row_S.to(tl.int64) * num_items + item_S
    return Tile(row_S, item_S, sample_S, (row_S < num_rows) & (item_S < num_items))


@kernel
def _deep_tower(tables: tl.tuple, weights: tl.tuple, tile: tl.tuple, shape: tl.tuple) -> tl.tensor:
    """Share of the logits that a tower of more than one layer has."""
    product_SW = tl.zeros((shape.block, shape.padded[1]), tl.float32)
    for first in range(0, shape.padded[0], shape.chunk):
        chunk_SC = tower.first_chunk(tables, tile, 0, first, shape)
        product_SW = _add_product(product_SW, chunk_SC, weights.hidden, 1, first, shape)
    activation_SW = tower.next_activation(product_SW, weights.biases, 0, tile.sample_S, 1, shape)
    for n in tl.static_range(2, len(shape.widths)):
        chunks = _cut(activation_SW, shape.chunk)
        product_SW = tl.zeros((shape.block, shape.padded[n]), tl.float32)
        for number in tl.static_range(len(chunks)):
            first = number * chunks[0].shape[1]
            product_SW = _add_product(product_SW, chunks[number], weights.hidden, n, first, shape)
        activation_SW = tower.next_activation(
            product_SW, weights.biases, 0, tile.sample_S, n, shape
        )
    output_W = load_vector(weights.output_tower_D, shape.widths[-1], shape.padded[-1], 0)
    return tl.sum(activation_SW.to(tl.float32) * output_W[None, :], axis=1)


@kernel
def _add_product(
    product_SW: tl.tensor,
    chunk_SC: tl.tensor,
    hidden: tl.tuple,
    LAYER: tl.constexpr,
    first: tl.tensor,
    shape: tl.tuple,
) -> tl.tensor:
    """Add a layer's product with a chunk of the layer before, the columns from ``first`` on."""
    weight_WC = tower.load_weight(hidden, LAYER, first, chunk_SC.shape[1], shape)
    return tl.dot(
        chunk_SC,
        tl.trans(weight_WC.to(shape.dtype)),
        product_SW,
        input_precision=shape.precision,
    )


@kernel
def _cut(activation_SW: tl.tensor, COLUMNS: tl.constexpr) -> tl.tuple:
    """Chunks of at most ``COLUMNS`` columns, left to right."""
    if activation_SW.shape[1] <= COLUMNS:
        return (activation_SW,)
    else:  # noqa: RET505 - a kernel compiles what follows a return
        HALF: tl.constexpr = activation_SW.shape[1] // 2
        halves_S2H = tl.reshape(activation_SW, (activation_SW.shape[0], 2, HALF))
        left_SH, right_SH = tl.split(tl.permute(halves_S2H, (0, 2, 1)))
        return _cut(left_SH, COLUMNS) + _cut(right_SH, COLUMNS)
