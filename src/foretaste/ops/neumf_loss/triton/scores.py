"""The fused kernel of inference: from indexes to logits in one visit, and nothing else written.

Each program scores one tile of samples. The tower is multiplied in chunks of columns: the first
layer is gathered chunk by chunk, the later ones are cut up where they lie, and weights are read as
they are needed, from a cache that other programs keep warm. So widths are bound by registers
alone, and float32 products, which run without tensor cores, need no more operands at a time than
fit there: whole layers at once were spilled to memory.

Shape suffixes: B rows, K candidates per row, I items, S samples of a tile, C columns of a chunk, F
factors and W some layer's width, both padded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from foretaste.ops.neumf_loss.triton import tower
from foretaste.ops.neumf_loss.triton.tile import first_chunk, gathered_product
from foretaste.ops.triton.rows import load_vector
from foretaste.ops.triton.support import kernel


class ScoresShape(NamedTuple):
    """What the kernel is compiled for, as `triton_tower.Shape`."""

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
    """Rows that a tile of the catalogue spans; zero where candidates are given."""
    indexed: Any
    """Whether rows are looked up in ``user_index_B``."""
    wide: Any
    """Whether there are more samples than int32 counts."""
    dtype: Any
    precision: Any


class Asked(NamedTuple):
    """The pairs to score: `indexed` and `tile_rows` say which of the two are there."""

    item_index_BK: Any
    user_index_B: Any


class ScoresTile(NamedTuple):
    """The samples of a tile: which rows they pair, where they go, which are more than padding."""

    row_S: Any
    item_S: Any
    sample_S: Any
    valid_S: Any


@kernel
def interaction_logits(
    tables: tl.tuple,
    weights: tl.tuple,
    asked: tl.tuple,
    logits_S: tl.tensor,
    num_rows: tl.tensor,
    num_candidates: tl.tensor,
    shape: tl.tuple,
) -> None:
    """Logits [B, K] of each row's candidates, or [B, I] of the catalogue."""
    if shape.tile_rows > 0:
        tile = _catalogue_tile(num_rows, num_candidates, shape)
    else:
        tile = _pairs_tile(asked, num_rows, num_candidates, shape)
    if len(shape.widths) > 1:
        logit_S = _deep(tables, weights, tile, shape)
    else:
        logit_S = _shallow(tables, weights, tile, shape)
    for first in range(0, shape.padded_factors, shape.factors_chunk):
        user_SC, item_SC = gathered_product(tables, tile, first, shape.factors_chunk, shape)
        output_C = load_vector(weights.output_product_F, shape.factors, shape.factors_chunk, first)
        logit_S += tl.sum(user_SC * item_SC * output_C[None, :], axis=1)
    logit_S += tl.load(weights.output_bias_1).to(tl.float32)
    tl.store(logits_S + tile.sample_S, logit_S, mask=tile.valid_S)


@kernel
def _pairs_tile(
    asked: tl.tuple, num_rows: tl.tensor, num_candidates: tl.tensor, shape: tl.tuple
) -> tl.tuple:
    """Samples in their order, whatever rows they belong to."""
    place_S = tl.arange(0, shape.block)
    if shape.wide:
        place_S = place_S.to(tl.int64)
    sample_S = tl.program_id(0).to(place_S.dtype) * shape.block + place_S
    row_S = sample_S // num_candidates
    valid_S = row_S < num_rows
    item_S = tl.load(asked.item_index_BK + sample_S, mask=valid_S, other=0)
    if shape.indexed:
        row_S = tl.load(asked.user_index_B + row_S, mask=valid_S, other=0)
    return ScoresTile(row_S, item_S, sample_S, valid_S)


@kernel
def _catalogue_tile(num_rows: tl.tensor, num_items: tl.tensor, shape: tl.tuple) -> tl.tuple:
    """Neighbouring items of neighbouring rows, so that one read serves several samples."""
    TILE_ITEMS: tl.constexpr = shape.block // shape.tile_rows
    tiles_across = tl.cdiv(num_items, TILE_ITEMS)
    place_S = tl.arange(0, shape.block)
    row_S = tl.program_id(0) // tiles_across * shape.tile_rows + place_S // TILE_ITEMS
    item_S = tl.program_id(0) % tiles_across * TILE_ITEMS + place_S % TILE_ITEMS
    sample_S = row_S.to(tl.int64) * num_items + item_S
    return ScoresTile(row_S, item_S, sample_S, (row_S < num_rows) & (item_S < num_items))


@kernel
def _shallow(tables: tl.tuple, weights: tl.tuple, tile: tl.tuple, shape: tl.tuple) -> tl.tensor:
    """What a tower of one layer adds to the logits, or one that is left out."""
    logit_S = tl.zeros((shape.block,), tl.float32)
    for first in range(0, shape.padded[0], shape.chunk):
        chunk_SC = first_chunk(tables, tile, 0, first, shape).to(tl.float32)
        output_C = load_vector(weights.output_tower_D, shape.widths[0], shape.chunk, first)
        logit_S += tl.sum(chunk_SC * output_C[None, :], axis=1)
    return logit_S


@kernel
def _deep(tables: tl.tuple, weights: tl.tuple, tile: tl.tuple, shape: tl.tuple) -> tl.tensor:
    """What a tower of several layers adds to the logits."""
    product_SW = tl.zeros((shape.block, shape.padded[1]), tl.float32)
    for first in range(0, shape.padded[0], shape.chunk):
        chunk_SC = first_chunk(tables, tile, 0, first, shape)
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
    """Add what a chunk of the layer before, its columns from ``first`` on, gives a layer."""
    weight_WC = tower.load_weight(
        hidden[LAYER - 1],
        first,
        chunk_SC.shape[1],
        shape.widths[LAYER - 1],
        shape.widths[LAYER],
        shape.padded[LAYER],
    )
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
