"""The fused kernel: loss and gradients of tile after tile of samples, each visited once.

Shape suffixes: B rows, K candidates per row, I items, S samples of a tile, R padded rows of a tile,
F factors and W some layer's width, both padded; H and D widths of the tower's first and last layer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from foretaste.ops.neumf_loss.triton import tower
from foretaste.ops.triton.functions import load_rows, load_vector, store_rows
from foretaste.ops.triton.support import kernel


class Compared(NamedTuple):
    """The samples; labels and weights with their strides (`tl.constexpr`), by row and candidate."""

    item_index_BK: Any
    label_BK: Any
    label_strides: Any
    weight_BK: Any
    weight_strides: Any
    loss_scale_2: Any
    """Factor of the weights that keeps gradients from vanishing in half precision; its inverse."""


class Written(NamedTuple):
    """Results of the kernel; the last four are multiplied by the loss scale."""

    user_product_BF: Any
    user_tower_BH: Any
    activations: Any
    """Of every layer but the last, [samples, width]."""
    slope_S: Any
    """Gradient of the logits."""
    gradients: Any
    """Of every layer's preactivations, [samples, width], last layer first."""
    sums: Any
    """Losses, slopes and gradients of output weights and biases, added up for each tile."""


@kernel
def interaction_step(
    tables: tl.tuple,
    compared: tl.tuple,
    weights: tl.tuple,
    written: tl.tuple,
    dropout_2: tl.tensor,
    num_rows: tl.tensor,
    shape: tl.tuple,
) -> None:
    """Loss and gradients; the programs share out the tiles and keep the weights on the chip."""
    key = (
        tl.load(dropout_2).to(tl.uint64, bitcast=True),
        tl.load(dropout_2 + 1).to(tl.uint64, bitcast=True),
    )
    first_weights = tower.load_first_weights(weights.hidden, shape)
    hidden = tower.load_weights(weights.hidden, shape)
    TILE_ROWS: tl.constexpr = shape.block // shape.candidates
    for number in range(tl.program_id(0), tl.cdiv(num_rows, TILE_ROWS), tl.num_programs(0)):
        position_S = tl.arange(0, shape.block)
        row_S = number * TILE_ROWS + position_S // shape.candidates
        valid_S = (position_S < TILE_ROWS * shape.candidates) & (row_S < num_rows)
        candidate_S = position_S % shape.candidates
        sample_S = row_S.to(tl.int64) * shape.candidates + candidate_S
        item_S = tl.load(compared.item_index_BK + sample_S, mask=valid_S, other=0)
        tile = tower.Tile(row_S, item_S, sample_S, valid_S)
        chunks = _first_layer(tables, written, tile, key, shape)
        activations = tower.forward(
            chunks, first_weights, hidden, weights.biases, key, tile.sample_S, shape
        )
        last_SW = (chunks + activations)[-1].to(tl.float32)
        output_F = load_vector(weights.output_product_F, shape.factors, shape.padded_factors)
        output_W = load_vector(weights.output_tower_D, shape.widths[-1], shape.padded[-1])
        user_SF, item_SF = tower.gathered_product(tables, tile, 0, shape.padded_factors, shape)
        product_SF = user_SF * item_SF
        logit_S = tl.sum(product_SF * output_F[None, :], axis=1)
        logit_S += tl.sum(last_SW * output_W[None, :], axis=1)
        logit_S += tl.load(weights.output_bias_1).to(tl.float32)
        loss_S, slope_S = _losses(compared, logit_S, tile, candidate_S)
        sums = written.sums + number * shape.num_sums
        position_R = tl.arange(0, shape.padded_rows)
        row_R = number * TILE_ROWS + position_R
        rows = (row_R, (position_R < TILE_ROWS) & (row_R < num_rows))
        inverse = tl.load(compared.loss_scale_2 + 1)
        tl.store(sums, tl.sum(loss_S, axis=0))
        tl.store(sums + 1, tl.sum(slope_S, axis=0))
        _store_sum(sums + 2, slope_S[:, None] * product_SF)
        _store_sum(sums + 2 + shape.padded_factors, slope_S[:, None] * last_SW)
        item_SF *= slope_S[:, None] * output_F[None, :]
        product_RF = inverse * _by_row(item_SF, shape.product_precision, shape)
        store_rows(written.user_product_BF, rows[0], rows[1], product_RF, 0, shape.factors)
        gradient_SW = slope_S[:, None] * output_W[None, :]
        gradients = tower.backward(activations, gradient_SW, hidden, shape)
        second_SW = ((gradient_SW,) + gradients)[-1]  # noqa: RUF005
        _write_samples(written, tile, slope_S, activations, gradients, sums, shape)
        _write_first_layer(written, tile, rows, chunks, first_weights, second_SW, inverse, shape)


@kernel
def _first_layer(
    tables: tl.tuple, written: tl.tuple, tile: tl.tuple, key: tl.tuple, shape: tl.tuple
) -> tl.tuple:
    """Gather both sides and activate their sum, chunk by chunk; weight gradients will need it."""
    WIDTH: tl.constexpr = shape.widths[0]
    chunks: tl.tuple = ()
    for number in tl.static_range(shape.padded[0] // shape.chunk):
        first = number * shape.chunk
        chunk_SC = tower.first_chunk(tables, tile, key, first, shape)
        if len(shape.widths) > 1:
            store_rows(written.activations[0], tile.sample_S, tile.valid_S, chunk_SC, first, WIDTH)
        chunks = chunks + (chunk_SC,)  # noqa: RUF005
    return chunks


@kernel
def _losses(
    compared: tl.tuple, logit_S: tl.tensor, tile: tl.tuple, candidate_S: tl.tensor
) -> tl.tuple:
    """Weighted cross-entropies, and the logits' gradients times the loss scale; 0 for padding."""
    label_S = _of_samples(compared.label_BK, compared.label_strides, tile, candidate_S)
    weight_S = _of_samples(compared.weight_BK, compared.weight_strides, tile, candidate_S)
    exp_S = tl.exp(-tl.abs(logit_S))
    softplus_S = tl.maximum(logit_S, 0.0) + _log1p(exp_S)
    sigmoid_S = tl.where(logit_S >= 0.0, 1.0, exp_S) / (1.0 + exp_S)
    slope_S = (sigmoid_S - label_S) * (weight_S * tl.load(compared.loss_scale_2))
    return weight_S * (softplus_S - logit_S * label_S), slope_S


@kernel
def _of_samples(
    pointer: tl.tensor, strides: tl.tuple, tile: tl.tuple, candidate_S: tl.tensor
) -> tl.tensor:
    position_S = tile.row_S.to(tl.int64) * strides[0] + candidate_S * strides[1]
    return tl.load(pointer + position_S, mask=tile.valid_S, other=0.0).to(tl.float32)


@kernel
def _log1p(value: tl.tensor) -> tl.tensor:
    """Exact to float32 also where ``1 + value`` is rounded (Kahan; Higham 2002, section 1.14.1)."""
    shifted = 1.0 + value
    step = shifted - 1.0
    return tl.where(
        step == 0.0, value, tl.log(shifted) * (value / tl.where(step == 0.0, 1.0, step))
    )


@kernel
def _write_samples(
    written: tl.tuple,
    tile: tl.tuple,
    slope_S: tl.tensor,
    activations: tl.tuple,
    gradients: tl.tuple,
    sums: tl.tensor,
    shape: tl.tuple,
) -> None:
    """Write activations and gradients of all layers but the first, and sums of the gradients."""
    LAST: tl.constexpr = len(shape.widths) - 1
    bias_sums = sums + 2 + shape.padded_factors + shape.padded[-1]
    sample_S, valid_S = tile.sample_S, tile.valid_S
    tl.store(written.slope_S + sample_S, slope_S, mask=valid_S)
    for n in tl.static_range(1, LAST):
        store_rows(
            written.activations[n], sample_S, valid_S, activations[n - 1], 0, shape.widths[n]
        )
    for n in tl.static_range(LAST):
        store_rows(written.gradients[n], sample_S, valid_S, gradients[n], 0, shape.widths[LAST - n])
        _store_sum(bias_sums, gradients[n].to(tl.float32))
        bias_sums += shape.padded[LAST - n]


@kernel
def _write_first_layer(
    written: tl.tuple,
    tile: tl.tuple,
    rows: tl.tuple,
    chunks: tl.tuple,
    first_weights: tl.tuple,
    gradient_SW: tl.tensor,
    inverse: tl.tensor,
    shape: tl.tuple,
) -> None:
    """Send the gradient through to the first layer, for samples and added up by row.

    ``gradient_SW`` is that of the second layer's preactivation, or of the only layer's activation.
    Activations are read again, once all threads have written them: keeping them costs registers
    that the products need.
    """
    WIDTH: tl.constexpr = shape.widths[0]
    tl.debug_barrier()
    for number in tl.static_range(len(chunks)):
        product_SC = gradient_SW
        if len(shape.widths) > 1:
            product_SC = tl.dot(gradient_SW, first_weights[number], input_precision=shape.precision)
        first = number * shape.chunk
        chunk_SC = chunks[number]
        if len(shape.widths) > 1:
            chunk_SC = load_rows(
                written.activations[0], tile.sample_S, tile.valid_S, first, shape.chunk, WIDTH
            )
        gradient_SC = tower.stopped(product_SC, chunk_SC, shape)
        store_rows(written.gradients[-1], tile.sample_S, tile.valid_S, gradient_SC, first, WIDTH)
        gradient_RC = inverse * _by_row(gradient_SC, shape.precision, shape)
        store_rows(written.user_tower_BH, rows[0], rows[1], gradient_RC, first, WIDTH)


@kernel
def _by_row(values_SW: tl.tensor, PRECISION: tl.constexpr, shape: tl.tuple) -> tl.tensor:
    """Sums over the candidates of each row, [R, W] float32, as a product with zeros and ones."""
    if shape.candidates == 1:
        return values_SW.to(tl.float32)
    position_R = tl.arange(0, shape.padded_rows)
    position_S = tl.arange(0, shape.block)
    belongs_RS = position_R[:, None] == (position_S // shape.candidates)[None, :]
    return tl.dot(belongs_RS.to(values_SW.dtype), values_SW, input_precision=PRECISION)


@kernel
def _store_sum(pointer: tl.tensor, rows_SW: tl.tensor) -> None:
    tl.store(pointer + tl.arange(0, rows_SW.shape[1]), tl.sum(rows_SW, axis=0))
