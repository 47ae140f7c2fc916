"""The fused kernel: loss and gradients of tile after tile of samples, each visited once.

As in `foretaste.ops.neumf_loss.tower`, relu and dropout share one mask, the activation's own zeros,
and the scale of what dropout keeps is folded into the weights of the next layer. Columns that pad a
width to a power of two hold zeros throughout. The first layer is the widest. It is kept and sent
backward in chunks of its columns, as registers cannot hold a whole tile of it in float32.

Shape suffixes: B rows, K candidates per row, I items, S samples of a tile, R padded rows of a tile,
F factors and W some layer's width, both padded, C columns of a chunk; H and D widths of the tower's
first and last layer.
"""

from __future__ import annotations

from typing import NamedTuple

import triton.language as tl

from foretaste.ops.triton.functions import (
    keep_mask,
    layer_key,
    load_rows,
    load_vector,
    store_rows,
)
from foretaste.ops.triton.support import kernel


class Tables(NamedTuple):
    """Tables whose rows the samples gather."""

    user_product_BF: tl.tensor
    item_product_IF: tl.tensor
    user_tower_BH: tl.tensor
    item_tower_IH: tl.tensor


class Weights(NamedTuple):
    """Weights of the network; the scale of dropout is within ``hidden`` and ``output_tower_D``."""

    output_product_F: tl.tensor
    output_tower_D: tl.tensor
    output_bias_1: tl.tensor
    hidden: tl.tuple
    biases: tl.tuple


class Tile(NamedTuple):
    """The samples of a tile: rows, items, numbers, and False for padding."""

    row_S: tl.tensor
    item_S: tl.tensor
    sample_S: tl.tensor
    valid_S: tl.tensor


class Shape(NamedTuple):
    """Sizes that a kernel is compiled for: every field a `tl.constexpr`, or a tuple of them."""

    candidates: tl.constexpr
    factors: tl.constexpr
    padded_factors: tl.constexpr
    widths: tl.tuple
    """Widths of the tower's layers, the first included."""
    padded: tl.tuple
    """Each of them padded to a power of two."""
    chunk: tl.constexpr
    """Columns of the first layer in a chunk; all of them if it is the only layer."""
    threshold: tl.constexpr
    """Random bytes below this drop an activation."""
    block: tl.constexpr
    """Samples of a tile at most: it holds whole rows."""
    padded_rows: tl.constexpr
    """Rows of a tile, padded to a power of two."""
    dtype: tl.constexpr
    """Dtype of the products and of the activations kept between them."""
    precision: tl.constexpr
    """Precision of float32 products: ``ieee`` or ``tf32``."""
    product_precision: tl.constexpr
    """The same for the product side's sums over candidates; their terms are float32."""
    num_sums: tl.constexpr
    """Sums kept of each tile."""


class Compared(NamedTuple):
    """The samples; labels and weights with their strides (`tl.constexpr`), by row and candidate."""

    item_index_BK: tl.tensor
    label_BK: tl.tensor
    label_strides: tl.tuple
    weight_BK: tl.tensor
    weight_strides: tl.tuple
    loss_scale_2: tl.tensor
    """Factor of the weights that keeps gradients from vanishing in half precision; its inverse."""


class Written(NamedTuple):
    """Results of the kernel. ``slope_S``, ``gradients`` and ``sums`` are multiplied by the loss
    scale, but for the losses in ``sums``."""

    user_product_BF: tl.tensor
    user_tower_BH: tl.tensor
    activations: tl.tuple
    """Activations of every layer but the last, [samples, width]."""
    slope_S: tl.tensor
    """Gradient of the logits."""
    gradients: tl.tuple
    """Gradients of every layer's preactivations, [samples, width], last layer first."""
    sums: tl.tensor
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
    """Compute loss and gradients; the programs share the tiles and keep the weights on chip."""
    key = (
        tl.load(dropout_2).to(tl.uint64, bitcast=True),
        tl.load(dropout_2 + 1).to(tl.uint64, bitcast=True),
    )
    first_weights = load_first_weights(weights.hidden, shape)
    hidden = load_weights(weights.hidden, shape)
    TILE_ROWS: tl.constexpr = shape.block // shape.candidates
    for number in range(tl.program_id(0), tl.cdiv(num_rows, TILE_ROWS), tl.num_programs(0)):
        position_S = tl.arange(0, shape.block)
        row_S = number * TILE_ROWS + position_S // shape.candidates
        valid_S = (position_S < TILE_ROWS * shape.candidates) & (row_S < num_rows)
        candidate_S = position_S % shape.candidates
        sample_S = row_S.to(tl.int64) * shape.candidates + candidate_S
        item_S = tl.load(compared.item_index_BK + sample_S, mask=valid_S, other=0)
        tile = Tile(row_S, item_S, sample_S, valid_S)
        chunks = _first_layer(tables, written, tile, key, shape)
        activations = forward(
            chunks, first_weights, hidden, weights.biases, key, tile.sample_S, shape
        )
        last_SW = (chunks + activations)[-1].to(tl.float32)
        output_F = load_vector(weights.output_product_F, shape.factors, shape.padded_factors)
        output_W = load_vector(weights.output_tower_D, shape.widths[-1], shape.padded[-1])
        user_SF, item_SF = _factors(tables, tile, shape)
        product_SF = user_SF * item_SF
        logit_S = tl.sum(product_SF * output_F[None, :], axis=1)
        logit_S += tl.sum(last_SW * output_W[None, :], axis=1)
        logit_S += tl.load(weights.output_bias_1).to(tl.float32)
        loss_S, slope_S = _losses(compared, logit_S, tile, candidate_S)
        # A place for each tile, not for each program: the sums are the same however many programs
        # share the tiles.
        sums = written.sums + number * shape.num_sums
        position_R = tl.arange(0, shape.padded_rows)
        row_R = number * TILE_ROWS + position_R
        rows = (row_R, (position_R < TILE_ROWS) & (row_R < num_rows))
        inverse = tl.load(compared.loss_scale_2 + 1)
        tl.store(sums, tl.sum(loss_S, axis=0))
        tl.store(sums + 1, tl.sum(slope_S, axis=0))
        _store_sum(sums + 2, slope_S[:, None] * product_SF)
        _store_sum(sums + 2 + shape.padded_factors, slope_S[:, None] * last_SW)
        # d logit / d u = h * i, for h the output weights; the row's sum over its candidates
        # follows.
        item_SF *= slope_S[:, None] * output_F[None, :]
        product_RF = inverse * _by_row(item_SF, shape.product_precision, shape)
        store_rows(written.user_product_BF, rows[0], rows[1], product_RF, 0, shape.factors)
        gradient_SW = slope_S[:, None] * output_W[None, :]
        gradients = backward(activations, gradient_SW, hidden, shape)
        second_SW = ((gradient_SW,) + gradients)[-1]  # noqa: RUF005
        _write_samples(written, tile, slope_S, activations, gradients, sums, shape)
        _write_first_layer(written, tile, rows, chunks, first_weights, second_SW, inverse, shape)


@kernel
def _first_layer(
    tables: tl.tuple, written: tl.tuple, tile: tl.tuple, key: tl.tuple, shape: tl.tuple
) -> tl.tuple:
    """Gather both sides and activate their sum, chunk by chunk; weight gradients will need it."""
    WIDTH: tl.constexpr = shape.widths[0]
    row_S, valid_S = tile.row_S, tile.valid_S
    chunks: tl.tuple = ()
    for number in tl.static_range(shape.padded[0] // shape.chunk):
        first = number * shape.chunk
        user_SC = load_rows(tables.user_tower_BH, row_S, valid_S, first, shape.chunk, WIDTH)
        item_SC = load_rows(tables.item_tower_IH, tile.item_S, valid_S, first, shape.chunk, WIDTH)
        chunk_SC = relu_dropout(user_SC + item_SC, key, tile.sample_S, 0, first, shape)
        if len(shape.widths) > 1:
            store_rows(written.activations[0], tile.sample_S, valid_S, chunk_SC, first, WIDTH)
        chunks = chunks + (chunk_SC,)  # noqa: RUF005
    return chunks


@kernel
def _factors(tables: tl.tuple, tile: tl.tuple, shape: tl.tuple) -> tl.tuple:
    """Return factors of users and of items, [S, F] each."""
    PADDED: tl.constexpr = shape.padded_factors
    WIDTH: tl.constexpr = shape.factors
    user_SF = load_rows(tables.user_product_BF, tile.row_S, tile.valid_S, 0, PADDED, WIDTH)
    item_SF = load_rows(tables.item_product_IF, tile.item_S, tile.valid_S, 0, PADDED, WIDTH)
    return user_SF, item_SF


@kernel
def _losses(
    compared: tl.tuple, logit_S: tl.tensor, tile: tl.tuple, candidate_S: tl.tensor
) -> tl.tuple:
    """Weighted cross-entropies, and the logits' gradients times the loss scale; 0 for padding."""
    label_S = _load_samples(compared.label_BK, compared.label_strides, tile, candidate_S)
    weight_S = _load_samples(compared.weight_BK, compared.weight_strides, tile, candidate_S)
    # softplus(z) = max(z, 0) + log(1 + exp(-|z|)): no exponential overflows.
    exp_S = tl.exp(-tl.abs(logit_S))
    softplus_S = tl.maximum(logit_S, 0.0) + _log1p(exp_S)
    sigmoid_S = tl.where(logit_S >= 0.0, 1.0, exp_S) / (1.0 + exp_S)
    slope_S = (sigmoid_S - label_S) * (weight_S * tl.load(compared.loss_scale_2))
    return weight_S * (softplus_S - logit_S * label_S), slope_S


@kernel
def _load_samples(
    pointer: tl.tensor, strides: tl.tuple, tile: tl.tuple, candidate_S: tl.tensor
) -> tl.tensor:
    position_S = tile.row_S.to(tl.int64) * strides[0] + candidate_S * strides[1]
    return tl.load(pointer + position_S, mask=tile.valid_S, other=0.0).to(tl.float32)


@kernel
def _log1p(value: tl.tensor) -> tl.tensor:
    """Return log(1 + value), exact to float32 even if ``1 + value`` is rounded (Kahan; Higham 2002,
    section 1.14.1)."""
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
    """Write slopes, inner activations, gradients after the first, and sums of these."""
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

    ``gradient_SW`` belongs to the second layer's preactivation, or to the only layer's activation.
    Activations are read again, once all threads have written them: keeping them costs registers
    that the products need.
    """
    WIDTH: tl.constexpr = shape.widths[0]
    # Threads read below what other threads of the program have written.
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
        gradient_SC = mask_gradient(product_SC, chunk_SC, shape)
        store_rows(written.gradients[-1], tile.sample_S, tile.valid_S, gradient_SC, first, WIDTH)
        gradient_RC = inverse * _by_row(gradient_SC, shape.precision, shape)
        store_rows(written.user_tower_BH, rows[0], rows[1], gradient_RC, first, WIDTH)


@kernel
def _by_row(values_SW: tl.tensor, PRECISION: tl.constexpr, shape: tl.tuple) -> tl.tensor:
    """Return each row's sums over candidates, [R, W] float32, by a product with zeros and ones."""
    if shape.candidates == 1:
        return values_SW.to(tl.float32)
    position_R = tl.arange(0, shape.padded_rows)
    position_S = tl.arange(0, shape.block)
    # A matrix product on the tensor cores adds a row's samples up, in place of a reduction whose
    # groups are no power of two.
    # [R, S]; zeros and ones are exact in every precision, so only the values are rounded.
    belongs_RS = position_R[:, None] == (position_S // shape.candidates)[None, :]
    return tl.dot(belongs_RS.to(values_SW.dtype), values_SW, input_precision=PRECISION)


@kernel
def _store_sum(pointer: tl.tensor, rows_SW: tl.tensor) -> None:
    tl.store(pointer + tl.arange(0, rows_SW.shape[1]), tl.sum(rows_SW, axis=0))


@kernel
def load_first_weights(weights: tl.tuple, shape: tl.tuple) -> tl.tuple:
    """Return the weights [out, C] that take the first layer's chunks to the second layer."""
    loaded: tl.tuple = ()
    if len(shape.widths) > 1:
        for number in tl.static_range(shape.padded[0] // shape.chunk):
            weight = load_weight(weights, 1, number * shape.chunk, shape.chunk, shape)
            loaded = loaded + (weight,)  # noqa: RUF005
    return loaded


@kernel
def load_weights(weights: tl.tuple, shape: tl.tuple) -> tl.tuple:
    """Return the weights [out, in] of the layers after the second."""
    loaded: tl.tuple = ()
    for n in tl.static_range(2, len(shape.widths)):
        loaded = loaded + (load_weight(weights, n, 0, shape.padded[n - 1], shape),)  # noqa: RUF005
    return loaded


@kernel
def load_weight(
    weights: tl.tuple,
    LAYER: tl.constexpr,
    first: tl.tensor,
    COLUMNS: tl.constexpr,
    shape: tl.tuple,
) -> tl.tensor:
    """Return columns [out, C] from ``first`` on of the weights [out, in] of a layer."""
    WIDTH: tl.constexpr = shape.widths[LAYER - 1]
    row_W, column_C = tl.arange(0, shape.padded[LAYER]), tl.arange(0, COLUMNS) + first
    mask_WC = (row_W < shape.widths[LAYER])[:, None] & (column_C < WIDTH)[None, :]
    pointer_WC = weights[LAYER - 1] + row_W[:, None] * WIDTH + column_C[None, :]
    return tl.load(pointer_WC, mask=mask_WC, other=0.0)


@kernel
def relu_dropout(
    preactivation_SC: tl.tensor,
    key: tl.tuple,
    sample_S: tl.tensor,
    LAYER: tl.constexpr,
    first: tl.tensor,
    shape: tl.tuple,
) -> tl.tensor:
    """Relu, then dropout, of a layer's columns that begin at ``first``.

    ``key`` is the step's key of dropout, and what takes a stream to its first sample. If
    anything is dropped, ``first`` is a `tl.constexpr`.
    """
    # A nan passes, as in PyTorch's relu: it must reach the loss, which shows the divergence.
    activation_SC = tl.maximum(preactivation_SC, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if shape.threshold > 0:
        keep_SC = keep_mask(
            layer_key(key[0], LAYER) + key[1],
            sample_S,
            first,
            preactivation_SC.shape[1],
            shape.threshold,
        )
        activation_SC = tl.where(keep_SC, activation_SC, 0.0)
    return activation_SC.to(shape.dtype)


@kernel
def next_activation(
    product_SW: tl.tensor,
    biases: tl.tuple,
    key: tl.tuple,
    sample_S: tl.tensor,
    LAYER: tl.constexpr,
    shape: tl.tuple,
) -> tl.tensor:
    """Return the activation of a layer after the first, from the product with its weights."""
    bias_W = load_vector(biases[LAYER - 1], shape.widths[LAYER], shape.padded[LAYER])
    return relu_dropout(product_SW + bias_W[None, :], key, sample_S, LAYER, 0, shape)


@kernel
def forward(
    chunks: tl.tuple,
    first_weights: tl.tuple,
    weights: tl.tuple,
    biases: tl.tuple,
    key: tl.tuple,
    sample_S: tl.tensor,
    shape: tl.tuple,
) -> tl.tuple:
    """Return the activations [S, W] of the layers after the first, from the chunks of the first."""
    activations: tl.tuple = ()
    if len(shape.widths) > 1:
        product_SW = tl.zeros((shape.block, shape.padded[1]), tl.float32)
        for number in tl.static_range(len(chunks)):
            # A weight is held once, as [out, C]: forward takes it transposed, backward as it is.
            weight_CW = tl.trans(first_weights[number])
            product_SW = tl.dot(
                chunks[number], weight_CW, product_SW, input_precision=shape.precision
            )
        activations = (next_activation(product_SW, biases, key, sample_S, 1, shape),)
        for n in tl.static_range(2, len(shape.widths)):
            product_SW = tl.dot(
                activations[n - 2], tl.trans(weights[n - 2]), input_precision=shape.precision
            )
            next_SW = next_activation(product_SW, biases, key, sample_S, n, shape)
            activations = activations + (next_SW,)  # noqa: RUF005
    return activations


@kernel
def backward(
    activations: tl.tuple, gradient_SW: tl.tensor, weights: tl.tuple, shape: tl.tuple
) -> tl.tuple:
    """Return gradients [S, W] of all preactivations but the first layer's, last layer first.

    ``gradient_SW`` is the gradient of the last activation.
    """
    gradients: tl.tuple = ()
    if len(shape.widths) > 1:
        gradients = (mask_gradient(gradient_SW, activations[-1], shape),)
        for step in tl.static_range(len(weights)):
            product_SW = tl.dot(
                gradients[step], weights[-1 - step], input_precision=shape.precision
            )
            stopped_SW = mask_gradient(product_SW, activations[-2 - step], shape)
            gradients = gradients + (stopped_SW,)  # noqa: RUF005
    return gradients


@kernel
def mask_gradient(gradient_SC: tl.tensor, activation_SC: tl.tensor, shape: tl.tuple) -> tl.tensor:
    """Return the gradient, but zero where relu or dropout made the activation zero."""
    return tl.where(activation_SC > 0, gradient_SC, 0.0).to(shape.dtype)
