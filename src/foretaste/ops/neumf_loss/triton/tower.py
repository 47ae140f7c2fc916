"""The network within kernels: one tile of samples forward and backward, without leaving the chip.

As in `foretaste.ops.neumf_loss.tower`, relu and dropout share one mask, the activation's own
zeros, and the scale of what dropout keeps is folded into the weights that follow. Columns that pad
a width to a power of two hold zeros throughout. The first layer, the widest, is kept and sent
backward in chunks of its columns: registers cannot hold a whole tile of it in float32.

Shape suffixes: B rows, I items, S samples of a tile, W the padded width of some layer, C columns of
a chunk, F padded factors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from foretaste.ops.neumf_loss.inputs import InteractionInputs
from foretaste.ops.triton.functions import keep_mask, layer_key, load_rows, load_vector
from foretaste.ops.triton.support import kernel

DTYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}
_NARROWEST = 16
"""The least width `tl.dot` multiplies."""


class Tables(NamedTuple):
    """Tables that samples gather their rows from."""

    user_product_BF: Any
    item_product_IF: Any
    user_tower_BH: Any
    item_tower_IH: Any


class Weights(NamedTuple):
    """Weights of the network; the scale of dropout is within ``hidden`` and ``output_tower_D``."""

    output_product_F: Any
    output_tower_D: Any
    output_bias_1: Any
    hidden: Any
    biases: Any


class Tile(NamedTuple):
    """The samples of a tile: their rows and items, their number, and whether they are padding."""

    row_S: Any
    item_S: Any
    sample_S: Any
    valid_S: Any


class Shape(NamedTuple):
    """Sizes that a kernel is compiled for: every field a `tl.constexpr`, or a tuple of them."""

    candidates: Any
    factors: Any
    padded_factors: Any
    widths: Any
    """Widths of the tower's layers, the first included."""
    padded: Any
    """Each of them padded to a power of two."""
    chunk: Any
    """Columns of the first layer in a chunk; all of them where it is the only layer."""
    threshold: Any
    """Random bytes below this drop an activation."""
    block: Any
    """Samples of a tile at most: it holds whole rows."""
    padded_rows: Any
    """Rows of a tile, padded to a power of two."""
    dtype: Any
    """Of the products and of the activations kept between them."""
    precision: Any
    """Of float32 products: ``ieee`` or ``tf32``."""
    product_precision: Any
    """The same for sums over a row's candidates, whose terms are float32 in any dtype."""
    num_sums: Any
    """Sums kept of each tile."""


def constants(values: Iterable[int]) -> tuple[Any, ...]:
    """Each value as a `tl.constexpr`."""
    return tuple(tl.constexpr(value) for value in values)


def widths_of(inputs: InteractionInputs) -> list[int]:
    """Widths of the tower's layers, the first included."""
    return [inputs.item_tower_IH.shape[1], *(weight.shape[0] for weight, _ in inputs.layers)]


def padded(width: int) -> int:
    """The least power of two that kernels can hold ``width`` columns in."""
    return max(_NARROWEST, 1 << (width - 1).bit_length())


def float32_precision() -> str:
    """Precision of float32 products, as `torch.backends.cuda.matmul.fp32_precision` has it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


@kernel
def load_first_weights(weights: tl.tuple, shape: tl.tuple) -> tl.tuple:
    """The weights [out, C] that take the first layer's chunks to the second layer."""
    loaded: tl.tuple = ()
    if len(shape.widths) > 1:
        for number in tl.static_range(shape.padded[0] // shape.chunk):
            weight = load_weight(weights, 1, number * shape.chunk, shape.chunk, shape)
            loaded = loaded + (weight,)  # noqa: RUF005
    return loaded


@kernel
def load_weights(weights: tl.tuple, shape: tl.tuple) -> tl.tuple:
    """The weights [out, in] of the layers after the second."""
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
    """Columns [out, C] from ``first`` on of the weights [out, in] of a layer."""
    WIDTH: tl.constexpr = shape.widths[LAYER - 1]
    row_W, column_C = tl.arange(0, shape.padded[LAYER]), tl.arange(0, COLUMNS) + first
    mask_WC = (row_W < shape.widths[LAYER])[:, None] & (column_C < WIDTH)[None, :]
    pointer_WC = weights[LAYER - 1] + row_W[:, None] * WIDTH + column_C[None, :]
    return tl.load(pointer_WC, mask=mask_WC, other=0.0)


@kernel
def activated(
    preactivation_SC: tl.tensor,
    key: tl.tuple,
    sample_S: tl.tensor,
    LAYER: tl.constexpr,
    first: tl.tensor,
    shape: tl.tuple,
) -> tl.tensor:
    """Relu, then dropout, of a layer's columns from ``first`` on.

    ``key`` is the step's key of dropout, and what takes a stream to its first sample. Where
    anything is dropped, ``first`` is a `tl.constexpr`.
    """
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
def first_chunk(
    tables: tl.tuple,
    tile: tl.tuple,
    key: tl.tuple,
    first: tl.tensor,
    shape: tl.tuple,
) -> tl.tensor:
    """Columns from ``first`` on of the tower's first activation, [S, C]."""
    WIDTH: tl.constexpr = shape.widths[0]
    user_SC = load_rows(tables.user_tower_BH, tile.row_S, tile.valid_S, first, shape.chunk, WIDTH)
    item_SC = load_rows(tables.item_tower_IH, tile.item_S, tile.valid_S, first, shape.chunk, WIDTH)
    return activated(user_SC + item_SC, key, tile.sample_S, 0, first, shape)


@kernel
def gathered_product(
    tables: tl.tuple, tile: tl.tuple, first: tl.tensor, COLUMNS: tl.constexpr, shape: tl.tuple
) -> tl.tuple:
    """Factors of users and of items from ``first`` on, [S, COLUMNS] each."""
    WIDTH: tl.constexpr = shape.factors
    user_SF = load_rows(tables.user_product_BF, tile.row_S, tile.valid_S, first, COLUMNS, WIDTH)
    item_SF = load_rows(tables.item_product_IF, tile.item_S, tile.valid_S, first, COLUMNS, WIDTH)
    return user_SF, item_SF


@kernel
def next_activation(
    product_SW: tl.tensor,
    biases: tl.tuple,
    key: tl.tuple,
    sample_S: tl.tensor,
    LAYER: tl.constexpr,
    shape: tl.tuple,
) -> tl.tensor:
    """The activation of a layer after the first, from the product with its weights."""
    bias_W = load_vector(biases[LAYER - 1], shape.widths[LAYER], shape.padded[LAYER])
    return activated(product_SW + bias_W[None, :], key, sample_S, LAYER, 0, shape)


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
    """The activations [S, W] of the layers after the first, from the chunks of the first."""
    activations: tl.tuple = ()
    if len(shape.widths) > 1:
        product_SW = tl.zeros((shape.block, shape.padded[1]), tl.float32)
        for number in tl.static_range(len(chunks)):
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
    """Gradients [S, W] of the preactivations of the layers after the first, last layer first.

    ``gradient_SW`` is the gradient of the last activation.
    """
    gradients: tl.tuple = ()
    if len(shape.widths) > 1:
        gradients = (stopped(gradient_SW, activations[-1], shape),)
        for step in tl.static_range(len(weights)):
            product_SW = tl.dot(
                gradients[step], weights[-1 - step], input_precision=shape.precision
            )
            stopped_SW = stopped(product_SW, activations[-2 - step], shape)
            gradients = gradients + (stopped_SW,)  # noqa: RUF005
    return gradients


@kernel
def stopped(gradient_SC: tl.tensor, activation_SC: tl.tensor, shape: tl.tuple) -> tl.tensor:
    """The gradient, but zero where relu or dropout made the activation zero."""
    return tl.where(activation_SC > 0, gradient_SC, 0.0).to(shape.dtype)
